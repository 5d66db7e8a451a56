"""The smallest files that ask a runtime for an op, and how its answers are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.engines import op_versions_probe as probing
from edged.engines.op_versions_probe import Probe

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")


@given(st.integers(0, 300).filter(lambda code: code != 32), st.integers(1, 1_000_000))
def test_a_builtin_file_holds_one_code_and_no_operator(code: int, version: int) -> None:
    """Read back with the file format's own classes: code, old code, version, an empty graph."""
    model = schema.Model.GetRootAs(probing.builtin_model(code, version), 0)
    assert schema.Model.ModelBufferHasIdentifier(probing.builtin_model(code, version), 0)
    assert (model.Version(), model.OperatorCodesLength(), model.SubgraphsLength(), model.BuffersLength()) == (
        3,
        1,
        1,
        1,
    )
    found = model.OperatorCodes(0)
    assert (found.BuiltinCode(), found.DeprecatedBuiltinCode()) == (code, min(code, 127))
    assert (found.Version(), found.CustomCode()) == (version, None)
    graph = model.Subgraphs(0)
    assert (graph.OperatorsLength(), graph.TensorsLength(), graph.InputsLength(), graph.OutputsLength()) == (0, 0, 0, 0)


@given(st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=40))
def test_a_custom_file_holds_one_node_of_the_op(name: str) -> None:
    """Read back with the file format's own classes: a name of any length, a node without tensors."""
    model = schema.Model.GetRootAs(probing.custom_model(name), 0)
    code, graph = model.OperatorCodes(0), model.Subgraphs(0)
    assert (code.BuiltinCode(), code.CustomCode().decode(), code.Version()) == (schema.BuiltinOperator.CUSTOM, name, 1)
    assert graph.OperatorsLength() == 1
    node = graph.Operators(0)
    assert (node.OpcodeIndex(), node.InputsLength(), node.OutputsLength()) == (0, 0, 0)
    assert bytes(node.CustomOptionsAsNumpy()) == bytes.fromhex("00000100002401")


class FakeRuntime:
    """Answers as the runtimes do: has op 9 in versions 2 to 4, op 3 in `three`, codes up to 40, custom op Known."""

    class OpResolverType:
        BUILTIN_WITHOUT_DEFAULT_DELEGATES = "plain"

    def __init__(self, three: tuple[int, ...] = (1,), refusal: str = "") -> None:
        self._has = {9: (2, 3, 4), 3: three}
        self._refusal = refusal

    def Interpreter(self, *, model_content: bytes, experimental_op_resolver_type: str) -> FakeRuntime:  # noqa: N802
        assert experimental_op_resolver_type == "plain"
        model = schema.Model.GetRootAs(model_content, 0)
        code = model.OperatorCodes(0)
        number, self._custom = code.BuiltinCode(), code.CustomCode()
        if number > 40:
            raise ValueError(f"Op builtin_code out of range: {number}. Are you using old TFLite binary?")
        if self._custom is None and code.Version() not in self._has.get(number, ()):
            raise ValueError(self._refusal or f"Didn't find op for builtin opcode 'OP_{number}' version 'x'.")
        return self

    def allocate_tensors(self) -> None:
        if self._custom is not None:
            raise RuntimeError("no inputs" if self._custom == b"Known" else "Encountered unresolved custom op: X.")


def test_spans_and_names_are_read_from_the_answers() -> None:
    """Every code is asked until the runtime knows no more; ops that are there in no version are left out."""
    assert Probe(FakeRuntime()).builtin() == {"OP_3": [1, 1], "OP_9": [2, 4]}
    assert Probe(FakeRuntime()).has_custom("Known")
    assert not Probe(FakeRuntime()).has_custom("Other")


@pytest.mark.parametrize(
    ("runtime", "says"),
    [
        (FakeRuntime(three=(1, 3)), "do not fit"),
        (FakeRuntime(three=tuple(range(1, 40))), "do not fit"),
        (FakeRuntime(refusal="out of memory"), "another reason"),
    ],
)
def test_an_answer_of_a_new_kind_is_no_measurement(runtime: Any, says: str) -> None:
    """Versions with a hole, more than are asked for, or a refusal that names no op: an error, not a wrong table."""
    with pytest.raises(RuntimeError, match=says):
        Probe(runtime).builtin()
