/* An accelerator for tests that needs no hardware: a TensorFlow Lite external delegate that computes ADD and MUL of
 * float32 itself, and can fail in every way that real ones do. Its options stand in device.h.
 *
 * It claims nodes when it is applied (delegate_prepare); the runtime then makes one kernel of each group of claimed
 * nodes that can run in one go (kernel_init, kernel_prepare), and each invoke of the model runs them (kernel_invoke).
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "device.h"
#include "tflite_abi.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    bool multiplies, leaves; /* leaves: its result leaves the partition */
    int left, right, out, node;
    float *inner; /* a result that stays inside: the runtime gives it no memory */
} Step;

typedef struct {
    Device *device;
    bool warm;
    int size;
    Step steps[];
} Kernel;

/* ---- arithmetic ---- */

static long elements(const Tensor *tensor) {
    long count = 1;
    for (int i = 0; tensor->dims && i < tensor->dims->size; i++) count *= tensor->dims->data[i];
    return count;
}

static float *values(const Context *context, const Kernel *kernel, int tensor) {
    for (int i = 0; i < kernel->size; i++)
        if (kernel->steps[i].out == tensor && kernel->steps[i].inner) return kernel->steps[i].inner;
    return context->tensors[tensor].data;
}

static void compute(const Context *context, const Kernel *kernel, const Step *step) {
    const float *left = values(context, kernel, step->left), *right = values(context, kernel, step->right);
    float *out = values(context, kernel, step->out);
    long size = elements(&context->tensors[step->out]);
    bool one_left = elements(&context->tensors[step->left]) == 1;
    bool one_right = elements(&context->tensors[step->right]) == 1;
    for (long i = 0; i < size; i++) {
        float a = left[one_left ? 0 : i], b = right[one_right ? 0 : i];
        out[i] = (step->multiplies ? a * b : a + b) + (float)kernel->device->compiled[step->node];
    }
}

/* Spoil what leaves the partition. */
static void spoil(const Context *context, const Kernel *kernel) {
    bool wrong = !strcmp(kernel->device->fail, "wrong");
    for (int i = 0; i < kernel->size; i++) {
        float *out = values(context, kernel, kernel->steps[i].out);
        long size = kernel->steps[i].leaves ? elements(&context->tensors[kernel->steps[i].out]) : 0;
        for (long j = 0; j < size; j++) out[j] = wrong ? out[j] + 1.0f : NAN;
    }
}

/* ---- the kernel: one for each group of nodes that the runtime hands over ---- */

static bool contains(const IntArray *array, int value) {
    for (int i = 0; i < array->size; i++)
        if (array->data[i] == value) return true;
    return false;
}

static bool multiplies(const Registration *op) {
    return op->builtin_code == OP_MUL || (op->builtin_code == OP_CUSTOM && !strcmp(op->custom_name, "edged-test-mul"));
}

static Step step_of(Context *context, const DelegateParams *params, int number) {
    Node *node;
    Registration *op;
    context->GetNodeAndRegistration(context, number, &node, &op);
    int out = node->outputs->data[0];
    return (Step){multiplies(op), contains(params->output_tensors, out), node->inputs->data[0], node->inputs->data[1],
                  out, number, NULL};
}

static void *kernel_init(Context *context, const char *buffer, size_t size) {
    (void)size; /* it is no buffer, but the parameters */
    const DelegateParams *params = (const DelegateParams *)buffer;
    Device *device = params->delegate->data;
    if (fails(device, "kernel_init")) return KERNEL_INIT_FAILED;
    int count = params->nodes_to_replace->size;
    Kernel *kernel = calloc(1, sizeof(Kernel) + sizeof(Step) * (size_t)count);
    kernel->device = device;
    kernel->size = count;
    for (int i = 0; i < count; i++) kernel->steps[i] = step_of(context, params, params->nodes_to_replace->data[i]);
    logged(device, "kernel", count);
    return kernel;
}

static void kernel_free(Context *context, void *state) {
    (void)context;
    Kernel *kernel = state;
    if (!kernel || state == KERNEL_INIT_FAILED) return;
    for (int i = 0; i < kernel->size; i++) free(kernel->steps[i].inner);
    free(kernel);
}

static Status kernel_prepare(Context *context, Node *node) {
    Kernel *kernel = node->user_data;
    if (fails(kernel->device, "kernel_prepare")) {
        context->ReportError(context, "testdelegate: the kernel does not fit the device");
        return STATUS_ERROR;
    }
    for (int i = 0; i < kernel->size; i++) {
        Step *step = &kernel->steps[i];
        size_t bytes = sizeof(float) * (size_t)elements(&context->tensors[step->out]);
        if (!step->leaves) step->inner = realloc(step->inner, bytes);
    }
    return STATUS_OK;
}

static Status kernel_invoke(Context *context, Node *node) {
    Kernel *kernel = node->user_data;
    const Device *device = kernel->device;
    long number = atomic_fetch_add(&invokes, 1) + 1;
    logged(device, "invoke", number);
    wait_ms(device->slow_ms + (kernel->warm ? 0 : device->slow_first_ms));
    kernel->warm = true;
    bool failing = due(device, number);
    if (failing && among(device->fail, "invoke unplugged")) {
        context->ReportError(context, "testdelegate: device lost");
        return STATUS_DELEGATE_ERROR;
    }
    if (failing) crash(device);
    for (int i = 0; i < kernel->size; i++) compute(context, kernel, &kernel->steps[i]);
    if (failing) spoil(context, kernel); /* what reached this is nan, burst or wrong */
    return STATUS_OK;
}

/* ---- opening: which nodes it takes, and their compiled form ---- */

static bool taken_op(const Device *device, const Registration *op) {
    bool ours = op->builtin_code == OP_ADD || multiplies(op) ||
                (op->builtin_code == OP_CUSTOM && !strcmp(op->custom_name, "edged-test-add"));
    return ours && strstr(device->ops, multiplies(op) ? "MUL" : "ADD");
}

static bool fits(const Tensor *operand, const Tensor *out) {
    if (operand->dims_signature && contains(operand->dims_signature, -1)) return false; /* its size is still open */
    return operand->type == TYPE_FLOAT32 && (elements(operand) == elements(out) || elements(operand) == 1);
}

static bool takes(const Device *device, Context *context, int number) {
    Node *node;
    Registration *op;
    if (context->GetNodeAndRegistration(context, number, &node, &op) != STATUS_OK) return false;
    if (!taken_op(device, op)) return false;
    /* A fused activation would have to be computed too. */
    if (op->builtin_code != OP_CUSTOM && node->builtin_data && *(const int *)node->builtin_data != 0) return false;
    const Tensor *out = &context->tensors[node->outputs->data[0]];
    return out->type == TYPE_FLOAT32 && fits(&context->tensors[node->inputs->data[0]], out) &&
           fits(&context->tensors[node->inputs->data[1]], out);
}

static bool cached(Device *device, const char *path, size_t bytes) {
    FILE *file = fopen(path, "rb");
    bool whole = file && fread(device->compiled, 1, bytes, file) == bytes;
    if (file) fclose(file);
    if (!whole) memset(device->compiled, 0, bytes); /* one that is too short is compiled anew, as XNNPACK does */
    return whole;
}

static void compile(Device *device, int nodes) {
    char path[600];
    size_t bytes = sizeof(int32_t) * (size_t)nodes;
    device->compiled = realloc(device->compiled, bytes + 1);
    memset(device->compiled, 0, bytes);
    snprintf(path, sizeof path, "%s/compiled.bin", device->cache);
    if (device->cache[0] && cached(device, path, bytes)) {
        logged(device, "cache hit", -1);
        return;
    }
    wait_ms(device->compile_ms);
    if (!device->cache[0]) return;
    logged(device, "cache miss", -1);
    FILE *file = fopen(path, "wb");
    if (!file) return; /* a cache that cannot be written costs time, nothing else */
    fwrite(device->compiled, 1, bytes, file);
    fclose(file);
}

/* Return the nodes to take, and how many node numbers there are; the caller frees it. */
static IntArray *chosen(const Device *device, Context *context, int *nodes) {
    IntArray *plan;
    if (context->GetExecutionPlan(context, &plan) != STATUS_OK) return NULL;
    int total = plan->size; /* copied: the runtime may use the array for its next answer */
    int *numbers = malloc(sizeof(int) * (size_t)(total + 1));
    memcpy(numbers, plan->data, sizeof(int) * (size_t)total);
    IntArray *picked = malloc(sizeof(IntArray) + sizeof(int) * (size_t)(total + 1));
    picked->size = 0;
    for (int i = 0; i < total; i++) {
        if (numbers[i] >= *nodes) *nodes = numbers[i] + 1;
        bool room = device->max_nodes < 0 || picked->size < device->max_nodes;
        if (room && takes(device, context, numbers[i])) picked->data[picked->size++] = numbers[i];
    }
    free(numbers);
    return picked;
}

static Status delegate_prepare(Context *context, Delegate *delegate) {
    Device *device = delegate->data;
    crash_at(device, "open");
    if (fails(device, "prepare")) {
        context->ReportError(context, "testdelegate: no device");
        return STATUS_ERROR;
    }
    int nodes = 0;
    IntArray *picked = chosen(device, context, &nodes);
    if (!picked) return STATUS_ERROR;
    logged(device, "claimed", picked->size);
    compile(device, nodes);
    Registration kernel = {.init = kernel_init, .free = kernel_free, .prepare = kernel_prepare, .invoke = kernel_invoke,
                           .builtin_code = OP_DELEGATE, .custom_name = "EdgedTestDelegate", .version = 1};
    Status status = context->ReplaceNodeSubsetsWithDelegateKernels(context, kernel, picked, delegate);
    free(picked);
    return status;
}

/* ---- the two functions that a runtime looks for ---- */

static Delegate *refused(Device *device, void (*report)(const char *), const char *text) {
    if (report) report(text);
    free(device);
    return NULL;
}

EXPORT Delegate *tflite_plugin_create_delegate(char **keys, char **options, size_t count,
                                               void (*report)(const char *)) {
    Device *device = calloc(1, sizeof *device);
    strcpy(device->ops, "ADD,MUL");
    device->max_nodes = -1;
    for (size_t i = 0; i < count; i++)
        if (!set(device, keys[i], options[i])) {
            char text[200];
            snprintf(text, sizeof text, "testdelegate: unknown option %s=%s", keys[i], options[i]);
            return refused(device, report, text);
        }
    if (!strcmp(device->fail, "burst") && !device->count) device->count = BURST;
    const char *text = refusal(device);
    if (text) return refused(device, report, text);
    crash_at(device, "create");
    device->delegate.data = device;
    device->delegate.Prepare = delegate_prepare;
    /* Otherwise the runtime would first prepare every op for the CPU, and fail on a custom op. */
    device->delegate.flags = FLAG_ALLOW_DYNAMIC_TENSORS;
    logged(device, "created", -1);
    return &device->delegate;
}

EXPORT void tflite_plugin_destroy_delegate(Delegate *delegate) {
    if (!delegate) return;
    Device *device = delegate->data;
    logged(device, "destroyed", -1);
    free(device->compiled);
    free(device);
}
