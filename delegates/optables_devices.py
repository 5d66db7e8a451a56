"""Documented ops of the GPU delegate and of the NPUs that are reached through a TFLite delegate or a compiler."""

from __future__ import annotations

from delegates.oprules import EIGHT_BIT, Rule, Table, rules

_TENSORFLOW = "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite"
_NONE: frozenset[str] = frozenset()
_FUSED = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "TANH"})
_IMAGE = frozenset({4})

_BOOL = frozenset({"bool"})
_GPU_DTYPES = frozenset({"float16", "float32"}) | EIGHT_BIT
_COMPARED = Rule(_GPU_DTYPES | _BOOL)
_SLICED = Rule(ranks=frozenset({3, 4}), note="no ellipsis, new axis or shrink axis")
_REDUCED = Rule(constant=(1,))
_GPU_ACTIVATED = Rule(activations=_FUSED)
GPU = Table(
    "gpu_tflite",
    "TFLite GPU delegate",
    f"{_TENSORFLOW}/tools/versioning/gpu_compatibility.cc",
    "2026, and its default options",
    rules(
        """ABS ADD ADD_N ATAN2 BATCH_MATMUL CEIL CONCATENATION COS CUMSUM DENSIFY DEPTH_TO_SPACE DEQUANTIZE
        DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP EXP FLOOR FLOOR_DIV FLOOR_MOD GATHER GELU HARD_SWISH LEAKY_RELU LOG
        LOGISTIC LSTM MAXIMUM MINIMUM MIRROR_PAD NEG PACK PAD PADV2 POW PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 RESHAPE
        RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SIGN SIN SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE
        SQUARED_DIFFERENCE STABLEHLO_CLAMP TANH TILE TRANSPOSE TRANSPOSE_CONV""",
        AVERAGE_POOL_2D=_GPU_ACTIVATED,
        CAST=Rule(_BOOL | frozenset({"float16", "float32", "int32"})),
        CONV_2D=_GPU_ACTIVATED,
        DEPTHWISE_CONV_2D=Rule(activations=_FUSED, ranks=_IMAGE),
        DIV=_GPU_ACTIVATED,
        EQUAL=_COMPARED,
        FULLY_CONNECTED=Rule(computed=(0,)),
        GREATER=_COMPARED,
        GREATER_EQUAL=_COMPARED,
        LESS=_COMPARED,
        LESS_EQUAL=_COMPARED,
        LOGICAL_AND=_COMPARED,
        MAX_POOL_2D=_GPU_ACTIVATED,
        MEAN=_REDUCED,
        MUL=_GPU_ACTIVATED,
        NOT_EQUAL=_COMPARED,
        ONE_HOT=Rule(_GPU_DTYPES | frozenset({"int32"}), constant=(2, 3)),
        REDUCE_MAX=_REDUCED,
        REDUCE_MIN=_REDUCED,
        REDUCE_PROD=_REDUCED,
        SELECT=_COMPARED,
        SELECT_V2=_COMPARED,
        SLICE=_SLICED,
        STRIDED_SLICE=_SLICED,
        SUB=_GPU_ACTIVATED,
        SUM=_REDUCED,
    ),
    dtypes=_GPU_DTYPES,
    max_rank=4,
    most=1,  # max_delegated_partitions, by default
)

EDGETPU = Table(
    "edgetpu",
    "Coral Edge TPU compiler",
    "https://coral.ai/docs/edgetpu/models-intro/",
    "compiler 16, runtime 14; rows after RESIZE_BILINEAR not verified",
    rules(
        """ADD EXPAND_DIMS L2_NORMALIZATION LOGISTIC MAXIMUM MINIMUM MUL QUANTIZE RELU RELU6 RELU_N1_TO_1 RESHAPE
        RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SPACE_TO_DEPTH SQUARED_DIFFERENCE SUB TANH TRANSPOSE TRANSPOSE_CONV
        UNIDIRECTIONAL_SEQUENCE_LSTM""",
        AVERAGE_POOL_2D=Rule(activations=_NONE),
        CONCATENATION=Rule(activations=_NONE, note="a constant input must be all zeros, and one of two"),
        CONV_2D=Rule(constant=(1, 2), note="the same dilation in height and width"),
        DEPTHWISE_CONV_2D=Rule(constant=(1, 2), note="no dilated kernels"),
        FULLY_CONNECTED=Rule(constant=(1, 2), note="one-dimensional output, default weight format"),
        MAX_POOL_2D=Rule(activations=_NONE),
        MEAN=Rule(constant=(1,), note="not over the batch; over channels in multiples of 4"),
        PACK=Rule(note="not along the batch"),
        PAD=Rule(constant=(1,), note="not along the batch"),
        PRELU=Rule(constant=(1,), note="slopes per channel"),
        REDUCE_MAX=Rule(constant=(1,), note="not over the batch"),
        REDUCE_MIN=Rule(constant=(1,), note="not over the batch"),
        RESIZE_BILINEAR=Rule(note="left out at sizes that would lose precision"),
        SOFTMAX=Rule(note="one-dimensional input of up to 16,000 elements"),
        SPLIT=Rule(note="not along the batch"),
        SQUEEZE=Rule(note="leading ones only"),
        STRIDED_SLICE=Rule(note="strides of one"),
        SUM=Rule(constant=(1,), note="not over the batch"),
    ),
    dtypes=EIGHT_BIT,
    inner=3,
    static=True,
    in_order=True,
    most=1,  # "as soon as an unsupported operation occurs": what comes after it stays on the CPU
    keep="first",
)

_ETHOS_DTYPES = EIGHT_BIT | frozenset({"int16", "int32"})
_NARROW = EIGHT_BIT | frozenset({"int16"})
_SIGNED = frozenset({"int8", "int16"})
_ETHOS_WEIGHTS = Rule(_NARROW, constant=(2,), note="8-bit weights; limits of stride, kernel and weight sum")
_ETHOS_PADDED = Rule(_NARROW, constant=(1,))
ETHOS_U = Table(
    "ethos_u",
    "Arm Ethos-U55 and U65 (Vela)",
    "https://pypi.org/project/ethos-u-vela/5.2.0/",
    "Vela 5.2.0, supported-ops report",
    rules(
        """ABS AVERAGE_POOL_2D CONCATENATION EXP HARD_SWISH LEAKY_RELU LOGISTIC MAX_POOL_2D MAXIMUM MINIMUM PACK PRELU
        QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU_0_TO_1 RELU6 RELU_N1_TO_1 RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR
        REVERSE_V2 SOFTMAX SPLIT SPLIT_V SQUARED_DIFFERENCE TANH TILE UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK""",
        Rule(_NARROW),
        ADD=Rule(),
        ARG_MAX=Rule(_ETHOS_DTYPES | frozenset({"int64"}), note="along channels, at most 127 of them"),
        BATCH_MATMUL=Rule(frozenset({"int8"})),
        CONV_2D=_ETHOS_WEIGHTS,
        DEPTHWISE_CONV_2D=_ETHOS_WEIGHTS,
        ELU=Rule(frozenset({"int8"})),
        EXPAND_DIMS=Rule(),
        FULLY_CONNECTED=Rule(constant=(2,), note="8-bit weights"),
        GELU=Rule(EIGHT_BIT),
        LOG=Rule(_SIGNED),
        MEAN=Rule(_NARROW, constant=(1,), note="batch of one; limits of the reduced size"),
        MIRROR_PAD=Rule(constant=(1,)),
        MUL=Rule(),
        NEG=Rule(),
        PAD=_ETHOS_PADDED,
        PADV2=_ETHOS_PADDED,
        RESHAPE=Rule(),
        RSQRT=Rule(_SIGNED),
        SLICE=Rule(_NARROW, constant=(1, 2)),
        SQUEEZE=Rule(),
        STRIDED_SLICE=Rule(_NARROW, constant=(1, 2, 3)),
        SUB=Rule(),
        SUM=Rule(),
        TRANSPOSE=Rule(constant=(1,), note="limits of size by permutation"),
        TRANSPOSE_CONV=Rule(_NARROW, constant=(1, 3), note="strides 1x1 or 2x2"),
    ),
    dtypes=_ETHOS_DTYPES,
    static=True,
    in_order=True,  # Vela orders parallel branches anew, so that its count may differ by a few
)

VX = Table(
    "vx",
    "NXP i.MX 8 VX delegate",
    "https://github.com/nxp-imx/tflite-vx-delegate-imx/blob/HEAD/op_map.cc",
    "op_map.cc, 2024",
    rules(
        """ABS ADD ADD_N AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND CONCATENATION CONV_2D DEPTH_TO_SPACE
        DEPTHWISE_CONV_2D DIV ELU EQUAL EXP EXPAND_DIMS FLOOR FLOOR_DIV FULLY_CONNECTED GATHER GATHER_ND GELU GREATER
        GREATER_EQUAL HARD_SWISH L2_NORMALIZATION LEAKY_RELU LESS LESS_EQUAL LOCAL_RESPONSE_NORMALIZATION LOG
        LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAX_POOL_2D MAXIMUM MEAN MINIMUM MUL NEG NOT_EQUAL ONE_HOT PACK PAD
        POW PRELU QUANTIZE REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RNN RSQRT SELECT SELECT_V2 SIN SLICE SOFTMAX SPACE_TO_BATCH_ND
        SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUEEZE STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV
        UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK""",
        ARG_MAX=Rule(note="no int32 result of an int8 input"),
        ARG_MIN=Rule(note="no int32 result of an int8 input"),
        CONV_3D=Rule(constant=(1,), note="no dilation"),
        DEQUANTIZE=Rule(EIGHT_BIT | frozenset({"int16", "float16", "float32"})),
    ),
    dtypes=EIGHT_BIT | frozenset({"bool", "float16", "float32", "int32"}),
    never=frozenset({"int64", "string"}),
    max_rank=6,
)

_NEUTRON_WEIGHTS = Rule(constant=(1, 2), ranks=_IMAGE, note="no dilation; depthwise: multiplier 1, stride 1 or 2")
NEUTRON = Table(
    "neutron",
    "NXP i.MX 95 Neutron delegate",
    "https://github.com/nxp-imx/tflite-neutron-delegate/blob/HEAD/neutron_delegate_utils.cc",
    "neutron_delegate_utils.cc, 2024",
    {
        "ADD": Rule(computed=(0, 1)),
        "AVERAGE_POOL_2D": Rule(note="batch of one, channels in multiples of 16"),
        "CONV_2D": _NEUTRON_WEIGHTS,
        "DEPTHWISE_CONV_2D": _NEUTRON_WEIGHTS,
        "FULLY_CONNECTED": Rule(constant=(1, 2)),
        "MAX_POOL_2D": Rule(ranks=_IMAGE, note="batch of one, stride 1 or 2"),
        "PAD": Rule(ranks=_IMAGE, note="channels only, to a multiple of 16"),
        "RESHAPE": Rule(constant=(1,)),
    },
    dtypes=EIGHT_BIT,
)

_ARMNN_ACTIVATED = Rule(activations=_FUSED)
ARMNN = Table(
    "armnn",
    "Arm NN delegate",
    "https://arm-software.github.io/armnn/latest/delegate.html",
    "25.11",
    rules(
        """ABS ADD ARG_MAX ARG_MIN BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO CAST CEIL DEPTH_TO_SPACE DEQUANTIZE DIV
        ELU EQUAL EXP EXPAND_DIMS FILL FLOOR FLOOR_DIV GATHER GATHER_ND GELU GREATER GREATER_EQUAL HARD_SWISH
        L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOCAL_RESPONSE_NORMALIZATION LOG LOG_SOFTMAX LOGICAL_AND
        LOGICAL_NOT LOGICAL_OR LOGISTIC LSTM MAXIMUM MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 POW PRELU
        QUANTIZE RANK REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RSQRT SHAPE SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V
        SQRT SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE TRANSPOSE_CONV
        UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK""",
        AVERAGE_POOL_2D=_ARMNN_ACTIVATED,
        CONCATENATION=_ARMNN_ACTIVATED,
        CONV_2D=_ARMNN_ACTIVATED,
        CONV_3D=_ARMNN_ACTIVATED,
        DEPTHWISE_CONV_2D=_ARMNN_ACTIVATED,
        FULLY_CONNECTED=_ARMNN_ACTIVATED,
        MAX_POOL_2D=_ARMNN_ACTIVATED,
    ),
)
