/* The part of TensorFlow Lite's C interface that an external delegate needs, declared here so that no headers of a
 * runtime are needed to build one. Field order is that of `tflite/core/c/common.h`, whose structs only ever grow at
 * their end; it holds in tflite-runtime 2.14 and in ai-edge-litert 2.3.
 * https://github.com/google-ai-edge/LiteRT/blob/main/tflite/core/c/common.h
 */
#ifndef EDGED_TFLITE_ABI_H
#define EDGED_TFLITE_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { STATUS_OK = 0, STATUS_ERROR = 1, STATUS_DELEGATE_ERROR = 2 } Status;

enum { TYPE_FLOAT32 = 1 };
enum { FLAG_ALLOW_DYNAMIC_TENSORS = 1 };
enum { OP_ADD = 0, OP_MUL = 18, OP_CUSTOM = 32, OP_DELEGATE = 51 };

/* What `init` of a registration returns when it failed: a null pointer is a valid state. */
#define KERNEL_INIT_FAILED ((void *)(intptr_t)-1)

typedef struct {
    int size;
    int data[];
} IntArray;

typedef struct {
    int type;
    void *data;
    IntArray *dims;
    struct {
        float scale;
        int32_t zero_point;
    } params;
    int allocation_type;
    size_t bytes;
    const void *allocation;
    const char *name;
    void *delegate;
    int buffer_handle;
    bool data_is_stale;
    bool is_variable;
    struct {
        int type;
        void *params;
    } quantization;
    void *sparsity;
    const IntArray *dims_signature;
} Tensor;

typedef struct {
    IntArray *inputs, *outputs, *intermediates, *temporaries;
    void *user_data;    /* what the kernel's init returned */
    void *builtin_data; /* an op's own options; of ADD and MUL the fused activation comes first */
    const void *custom_initial_data;
    int custom_initial_data_size;
    void *delegate;
    bool might_have_side_effect;
} Node;

typedef struct Context Context;
typedef struct Delegate Delegate;

typedef struct {
    void *(*init)(Context *, const char *, size_t);
    void (*free)(Context *, void *);
    Status (*prepare)(Context *, Node *);
    Status (*invoke)(Context *, Node *);
    const char *(*profiling_string)(const Context *, const Node *);
    int32_t builtin_code;
    const char *custom_name;
    int version;
    void *registration_external;
    void *async_kernel;
    uint64_t inplace_operator;
    void *later_fields[8]; /* it goes by value: a runtime whose struct is longer must read zeros there, not the stack */
} Registration;

/* Comes to a delegate kernel's init in place of the op's data. */
typedef struct {
    Delegate *delegate;
    IntArray *nodes_to_replace, *input_tensors, *output_tensors;
} DelegateParams;

struct Context {
    size_t tensors_size;
    Status (*GetExecutionPlan)(Context *, IntArray **);
    Tensor *tensors;
    void *impl;
    Status (*ResizeTensor)(Context *, Tensor *, IntArray *);
    void (*ReportError)(Context *, const char *, ...);
    Status (*AddTensors)(Context *, int, int *);
    Status (*GetNodeAndRegistration)(Context *, int, Node **, Registration **);
    Status (*ReplaceNodeSubsetsWithDelegateKernels)(Context *, Registration, const IntArray *, Delegate *);
};

struct Delegate {
    void *data;
    Status (*Prepare)(Context *, Delegate *);
    void *CopyFromBufferHandle, *CopyToBufferHandle, *FreeBufferHandle;
    int64_t flags;
    void *opaque_delegate_builder;
};

#endif
