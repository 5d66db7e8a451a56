"""What the converter says, as one line with advice."""

from __future__ import annotations

import pytest

from converters import quantize

# As the converter of TensorFlow 2.21 prints them, shortened.
FLEX = """Some ops are not supported by the native TFLite runtime, you can enable TF kernels fallback using TF Select.
TF Select ops: MatrixInverse, Roll
Details:
\ttf.MatrixInverse(tensor<1x3x3xf32>) -> (tensor<1x3x3xf32>) : {adjoint = false, device = ""}
"""
CUSTOM = """error: failed while converting: 'main':
Some ops in the model are custom ops
Custom ops: MyOp
Details:
"""
LIST = """<unknown>:0: error: loc(callsite(fused["TensorListReserve:", "gru"])): 'tf.TensorListReserve' op requires \
element_shape to be static during TF Lite transformation pass
"""
OTHER = """first line
<unknown>:0: error: loc("x"): 'tfl.add' op is no good
more
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            FLEX,
            (
                "TF Select ops MatrixInverse, Roll are not in TFLite",
                "(replace them",
                "no device runtime that pip installs",
            ),
        ),
        (CUSTOM, ("Custom ops MyOp are not in TFLite", "(replace them", "--allow-custom MyOp lets")),
        (FLEX + CUSTOM, ("TF Select ops MatrixInverse, Roll; Custom ops MyOp", "(replace them", "no device runtime")),
        (LIST, ("a recurrent layer needs a batch of 1", "leave out --dynamic-batch and --batch")),
        (OTHER, ("with --quantize int8: 'tfl.add' op is no good", "float16 or dynamic")),
        ("just this\nand that", ("just this",)),
        (" ", ("no reason given",)),
    ],
)
def test_refusals(text: str, says: tuple[str, ...]) -> None:
    """The ops by name and what to do about them, else the first error: one line."""
    told = str(quantize.refusal("m", "int8", text))
    assert told.startswith("m: cannot be converted")
    assert "\n" not in told
    for part in says:
        assert part in told


def test_a_float_conversion_has_no_other_mode_to_try() -> None:
    """--quantize none gets no advice about modes."""
    assert quantize.refusal("m", "none", OTHER).hint == ""
