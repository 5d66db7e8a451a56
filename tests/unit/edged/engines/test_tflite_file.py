"""The reader of .tflite files, against the format's own generated classes, and against damage."""

from __future__ import annotations

import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tflitefiles, tinymodel

from edged.engines import tflite_file, tflite_flatbuffer, tflite_names
from edged.engines.tflite_file import Op
from edged.engines.tflite_flatbuffer import TooLargeError

MODELS = {
    "dense": tinymodel.dense_model,
    "difference": tinymodel.difference_model,
    "int8": tinymodel.int8_model,
    "slow": lambda: tinymodel.slow_model(3, 2),
    "written": tflitefiles.written,
}


@pytest.mark.parametrize("name", MODELS)
def test_every_field_is_what_the_generated_classes_read(name: str) -> None:
    """Two readers that share no code agree on whole files."""
    model = MODELS[name]()
    assert tflite_file.read(model) == tflitefiles.second_reading(model)


def test_seldom_fields_by_hand() -> None:
    """What was written into the file, value by value: neither reader is trusted here."""
    file = tflite_file.read(tflitefiles.written())
    main, body = file.graphs
    state, weights, scalar = main.tensors[2], main.tensors[1], main.tensors[3]
    assert (main.tensors[0].shape, main.tensors[0].signature) == ((1, 4), (-1, 4))
    assert (weights.scales, weights.zero_points, weights.axis, weights.data) == ((0.5, 0.25), (0, 0), 3, b"\x01\xff")
    assert (state.variable, state.zero_points, state.data) == (True, (-7,), b"")
    assert (scalar.shape, scalar.signature, np.frombuffer(scalar.data, np.float16)[0]) == ((), (), 1.0)
    assert main.ops[0] == Op("CONV_2D", 5, (0, 1, -1), (2,), activation="RELU6")
    assert [(op.name, op.version, op.custom, op.flex) for op in main.ops[1:3]] == [
        ("FlexErf", 1, True, True),
        ("MyOp", 3, True, False),
    ]
    assert (main.ops[3].inputs, main.ops[3].outputs) == ((), ())
    assert (body.name, body.inputs, file.signatures[1].graph) == ("body", (0,), 1)
    assert file.signatures[0].outputs == {"y": 3, "s": 2}
    assert (file.min_runtime_version, file.versions["SUB"]) == ("2.5.0", 9)


def test_what_is_newer_than_the_tables_gets_its_number() -> None:
    """An op or a type that we have no name for is told, not taken for another one."""
    main = tflite_file.read(tflitefiles.written()).graphs[0]
    assert main.ops[3].name == "OP_217"
    assert main.tensors[4].dtype == "type_40"
    assert tflite_names.activation(9) == "ACTIVATION_9"


def test_the_tables_of_names_are_complete() -> None:
    """Every operator, type and activation of the schema in the wheel, and every options table with an activation."""
    schema = tflitefiles.schema()
    for enum, named in (
        (schema.BuiltinOperator, tflite_names.operator),
        (schema.TensorType, lambda number: tflite_names.tensor_type(number).upper()),
        (schema.ActivationFunctionType, lambda number: tflite_names.activation(number) or "NONE"),
    ):
        names = {value: name for name, value in vars(enum).items() if isinstance(value, int)}
        assert {number: named(number) for number in names} == names
    options = [name for name, number in vars(schema.BuiltinOptions).items() if isinstance(number, int) and number]
    with_activation = {
        getattr(schema.BuiltinOptions, name)
        for name in options
        if hasattr(tflitefiles.part(name), "fusedActivationFunction")
    }
    assert set(tflite_names.ACTIVATION_SLOTS) == with_activation


def test_every_fused_activation_is_found() -> None:
    """Each options table keeps its activation in another field: one op of each, with another activation than none."""
    schema = tflitefiles.schema()
    names = {number: name for name, number in vars(schema.BuiltinOptions).items() if isinstance(number, int)}
    ops = [
        tflitefiles.part(
            "Operator",
            opcodeIndex=0,
            builtinOptionsType=number,
            builtinOptions=tflitefiles.part(names[number], fusedActivationFunction=schema.ActivationFunctionType.TANH),
        )
        for number in tflite_names.ACTIVATION_SLOTS
    ]
    model = tflitefiles.packed(
        operatorCodes=[tflitefiles.code(0)],
        subgraphs=[tflitefiles.graph([], ops, [], [])],
        buffers=[tflitefiles.buffer()],
    )
    assert [op.activation for op in tflite_file.read(model).graphs[0].ops] == ["TANH"] * len(ops)


@pytest.mark.parametrize(("deprecated", "newer"), [(99, 0), (127, 142), (99, 99)])
def test_an_operator_by_either_of_its_two_fields(deprecated: int, newer: int) -> None:
    """Old files know the deprecated field alone, whose numbers end at 127; new ones hold both."""
    code = tflitefiles.part("OperatorCode", deprecatedBuiltinCode=deprecated, builtinCode=newer, version=2)
    model = tflitefiles.packed(
        operatorCodes=[code],
        subgraphs=[tflitefiles.graph([], [tflitefiles.part("Operator", opcodeIndex=0)], [], [])],
        buffers=[tflitefiles.buffer()],
    )
    name = {99: "SQUARED_DIFFERENCE", 142: "VAR_HANDLE"}[max(deprecated, newer)]
    assert tflite_file.read(model).graphs[0].ops[0] == Op(name, 2, (), ())


def test_constants_behind_the_flatbuffer() -> None:
    """Large files keep constants after the flatbuffer, found by offset and size; two buffers may share them."""
    behind = np.arange(4, dtype=np.float32).tobytes()

    def packed(offset: int) -> bytes:
        buffers = [tflitefiles.buffer(), *(tflitefiles.part("Buffer", offset=offset, size=16) for _ in range(2))]
        tensors = [tflitefiles.part("Tensor", name=n, type=0, shape=[4], buffer=i) for i, n in ((1, "a"), (2, "b"))]
        return tflitefiles.packed(subgraphs=[tflitefiles.graph(tensors, [], [], [])], buffers=buffers)

    size = len(packed(1 << 20))
    a, b = tflite_file.read(packed(size) + behind).graphs[0].tensors
    assert a.data == b.data == behind
    with pytest.raises(ValueError, match="is cut short or damaged"):
        tflite_file.read(packed(size) + behind[:-1])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is no .tflite"),
        (b"\0\0\0\0TFL3", "leads nowhere"),
        (b"\xff\0\0\0TFL3", "is cut short or damaged"),
        (b"\x1c\0\0\0TFL2", "is no .tflite"),
    ],
)
def test_what_is_no_model(data: bytes, says: str) -> None:
    """Each in words a person understands."""
    with pytest.raises(ValueError, match=says):
        tflite_file.read(data)


def wrong(**changes: Any) -> bytes:
    """A sound file of one tensor and one op, but for the changes."""
    tensor = tflitefiles.part("Tensor", **{"name": "x", "shape": [1, 2], "buffer": 1, **changes.get("tensor", {})})
    op = tflitefiles.part("Operator", **{"opcodeIndex": 0, "inputs": [0], "outputs": [0], **changes.get("op", {})})
    return tflitefiles.packed(
        version=changes.get("version", 3),
        operatorCodes=[changes.get("code", tflitefiles.code(0))],
        subgraphs=changes.get("graphs", [tflitefiles.graph([tensor], [op], changes.get("inputs", [0]), [0])]),
        buffers=[tflitefiles.buffer(), tflitefiles.buffer(bytes(changes.get("bytes", 8)))],
        signatureDefs=[changes.get("signature", tflitefiles.signature("s", {"x": 0}, {"y": 0}))],
    )


def test_the_sound_file_of_the_next_test_is_sound() -> None:
    """Without a change nothing is refused."""
    assert tflite_file.read(wrong()).graphs[0].ops[0].name == "ADD"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 2}, "schema version 2"),
        ({"graphs": []}, "holds no graph"),
        ({"bytes": 7}, "7 bytes for tensor 'x', float32 1x2"),
        ({"op": {"opcodeIndex": 1}}, "operator code 1 of 1"),
        ({"op": {"inputs": [-2]}}, "tensor -2 of 1"),
        ({"op": {"outputs": [1]}}, "tensor 1 of 1"),
        ({"inputs": [-1]}, "tensor -1 of 1"),
        ({"tensor": {"buffer": 2}}, "buffer 2 of 2"),
        ({"tensor": {"externalBuffer": 1}}, "keeps constants in another file"),
        ({"code": "negative"}, "-3 is no operator"),
        ({"code": "nameless"}, "a custom operator has no name"),
        ({"signature": ("s", {"x": 1}, {})}, "tensor 1 of 1"),
        ({"signature": ("s", {}, {}, 1)}, "signature 's' is of graph 1 of 1"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], says: str) -> None:
    """Numbers that point beyond their table, bytes that do not fit their shape: what every runtime would refuse."""
    if "code" in changes:
        builtin = {"negative": -3, "nameless": 32}[str(changes["code"])]
        code = tflitefiles.part("OperatorCode", builtinCode=builtin, deprecatedBuiltinCode=builtin)
        changes = {"code": code}
    if "signature" in changes:
        changes = {"signature": tflitefiles.signature(*changes["signature"])}
    with pytest.raises(ValueError, match=says):
        tflite_file.read(wrong(**changes))


def test_scales_without_their_zero_points_are_refused() -> None:
    """Who reads a quantized tensor can rely on one zero point, or one for each scale."""
    bad = tflitefiles.part("QuantizationParameters", scale=[1.0, 2.0, 3.0], zeroPoint=[0, 0])
    with pytest.raises(ValueError, match="other numbers of scales and zero points"):
        tflite_file.read(wrong(tensor={"quantization": bad}))


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_that_is_no_number_is_refused(scale: float) -> None:
    """It would make every answer NaN, and a JSON of it is no JSON."""
    bad = tflitefiles.part("QuantizationParameters", scale=[scale], zeroPoint=[0])
    with pytest.raises(ValueError, match="'x' has a scale that is no finite number"):
        tflite_file.read(wrong(tensor={"quantization": bad}))


def test_two_tensors_of_one_name_are_refused() -> None:
    """A signature is bound by name, and would lose one of them."""
    twice = tflitefiles.signature("s", {"x": 0}, {})
    twice.inputs = twice.inputs * 2
    with pytest.raises(ValueError, match="two tensors of one name"):
        tflite_file.read(wrong(signature=twice))


@pytest.mark.parametrize("name", MODELS)
def test_every_truncation_is_refused_or_read(name: str) -> None:
    """A download that ended early at any byte: ValueError, and nothing else."""
    model = MODELS[name]()
    for size in range(len(model)):
        with pytest.raises(ValueError, match=r"\bis\b|\bholds\b"):
            tflite_file.read(model[:size])


@given(st.data())
def test_damage_raises_valueerror_or_reads(data: st.DataObject) -> None:
    """Any bytes changed to any values: a file, or ValueError; no IndexError, struct.error, MemoryError."""
    model = bytearray(MODELS[data.draw(st.sampled_from(sorted(MODELS)))]())
    value = st.sampled_from([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\x80"]) | st.binary(
        min_size=1, max_size=4
    )
    for at, new in data.draw(st.lists(st.tuples(st.integers(0, len(model) - 5), value), min_size=1, max_size=8)):
        model[at : at + len(new)] = new
    try:
        file = tflite_file.read(bytes(model))
    except ValueError:
        return
    assert file.graphs


@given(st.binary(max_size=200))
def test_noise_behind_the_identifier(noise: bytes) -> None:
    """Random bytes that only claim to be a model."""
    with pytest.raises(ValueError, match=r"\bis\b|\bholds\b"):
        tflite_file.read(noise[:4].ljust(4, b"\x08") + b"TFL3" + noise[4:])


def shared(count: int) -> bytes:
    """A file of `count` graphs that are one and the same graph, whose `count` tensors are one and the same tensor."""

    def vector(target: int) -> bytes:
        """`count` offsets that all lead to the byte `target` after the vector's end."""
        return struct.pack(f"<{count + 1}I", count, *range(4 * count + target, target, -4))

    vtables = struct.pack("<7H", 14, 16, 4, 0, 8, 0, 12) + struct.pack("<3H", 6, 8, 4) + struct.pack("<2H", 4, 4)
    head = struct.pack("<I4s", 32, b"TFL3") + vtables  # the vtables of root, graph and tensor at 8, 22 and 28
    graph, tensor = 52 + 4 * count, 64 + 8 * count
    root = struct.pack("<iIII", 32 - 8, 3, 8, tensor + 4 - 44)  # version, graphs, buffers
    return b"".join([
        head, root, vector(0), struct.pack("<iI", graph - 22, 4), vector(0), struct.pack("<i", tensor - 28),
        struct.pack("<IIi", 1, 4, tensor + 12 - 28),
    ])  # fmt: skip


def test_a_file_that_multiplies_itself_is_refused() -> None:
    """A few kilobytes must not become millions of tensors, which is what following every offset would make of them."""
    small = tflite_file.read(shared(3))
    assert [len(graph.tensors) for graph in small.graphs] == [3, 3, 3]
    with pytest.raises(ValueError, match="refer to each other more often"):
        tflite_file.read(shared(3000))


@pytest.mark.parametrize(
    ("size", "says"), [(4, "field 0 of the table at byte 64 lies outside it"), (60000, "cut short")]
)
def test_a_table_is_as_large_as_it_says(size: int, says: str) -> None:
    """A field beyond its own table, and a table beyond the file, in the graph of the file above."""
    model = bytearray(shared(3))
    struct.pack_into("<H", model, 24, size)  # in the graph's vtable
    with pytest.raises(ValueError, match=says):
        tflite_file.read(bytes(model))


def test_a_name_that_is_no_text() -> None:
    """Told in words, not as a decoder's complaint."""
    model = tinymodel.difference_model()
    with pytest.raises(ValueError, match=r"is damaged: the name at byte \d+ is no UTF-8"):
        tflite_file.read(model.replace(b"out_diff", b"out_\xff\xfeff"))


def test_buffers_that_overlap_are_refused() -> None:
    """So that a file's constants cannot take many times its size."""

    def packed(count: int) -> bytes:
        buffers = [tflitefiles.part("Buffer", offset=8 + i, size=2000) for i in range(count)]
        tensors = [tflitefiles.part("Tensor", name="t", type=3, shape=[2000], buffer=i) for i in range(count)]
        return tflitefiles.packed(subgraphs=[tflitefiles.graph(tensors, [], [], [])], buffers=buffers) + bytes(2000)

    assert len(tflite_file.read(packed(2)).graphs[0].tensors[1].data) == 2000
    with pytest.raises(ValueError, match="buffers lie over each other"):
        tflite_file.read(packed(40))


def test_real_files_of_other_packages_are_read_alike() -> None:
    """Whatever .tflite lies among the installed packages, read by both."""
    spec = find_spec("basic_pitch")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("basic_pitch is not installed")
    (path,) = Path(spec.submodule_search_locations[0]).rglob("*.tflite")
    model = path.read_bytes()
    assert tflite_file.read(model) == tflitefiles.second_reading(model)


def test_too_large_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that honestly needs more than is read here, and one that needs more than any file of its size can."""
    model = tinymodel.dense_model()
    tflite_file.read(model)
    monkeypatch.setattr(tflite_flatbuffer, "_BUDGET_CEILING", 500)
    with pytest.raises(TooLargeError, match="is too large to be read here"):
        tflite_file.read(model)
    monkeypatch.setattr(tflite_flatbuffer, "_BUDGET_FLOOR", 100 - 4 * len(model))
    monkeypatch.setattr(tflite_flatbuffer, "_BUDGET_CEILING", 1 << 26)
    with pytest.raises(ValueError, match="is damaged") as caught:
        tflite_file.read(model)
    assert not isinstance(caught.value, TooLargeError)


def test_what_is_damaged_is_told_with_a_name_that_is_cut() -> None:
    """A name of a million letters does not fill the terminal."""
    part, types = tflitefiles.part, tflitefiles.schema().TensorType
    tensor = part("Tensor", name="n" * 10**6, type=types.FLOAT32, shape=[2], buffer=1)
    graph = tflitefiles.graph([tensor], [], [0], [0])
    model = tflitefiles.packed(subgraphs=[graph], buffers=[tflitefiles.buffer(), tflitefiles.buffer(b"abcd")])
    with pytest.raises(ValueError, match="is damaged: 4 bytes") as caught:
        tflite_file.read(model)
    assert len(str(caught.value)) < 300
