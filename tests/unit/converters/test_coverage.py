"""Coverage rows: what tables say of whole graphs, and what a runtime's refusal or death becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import tinymodel

from converters import child, coverage
from converters.child import DiedError
from converters.report import Coverage, Refusal
from edged.engines import tflite_coverage, tflite_runtime
from edged.engines.tflite_file import Graph, ModelFile, Op, Tensor
from edged.errors import BadDataError

_KERAS = (
    "CONV_2D",
    "MAX_POOL_2D",
    "CONV_2D",
    "MAX_POOL_2D",
    "RESHAPE",
    "FULLY_CONNECTED",
    "FULLY_CONNECTED",
    "SOFTMAX",
)


def chain(*names: str, dtypes: tuple[str, ...] = (), shape: tuple[int, ...] = (1, 8)) -> ModelFile:
    """Ops in a row; dtypes: of the tensors between them, int8 by default."""
    dtypes = dtypes or ("int8",) * (len(names) + 1)
    tensors = tuple(Tensor(f"t{n}", dtype, shape, shape) for n, dtype in enumerate(dtypes))
    ops = tuple(Op(name, 1, (n,), (n + 1,)) for n, name in enumerate(names))
    return ModelFile((Graph("main", tensors, ops, (0,), (len(names),)),), ())


def rows(model: ModelFile) -> dict[str, Coverage]:
    return {row.delegate: row for row in coverage.documented(model)}


def test_every_delegate_has_a_row_that_says_how_it_is_known() -> None:
    """The delegates the fleet may have, each once, with its document."""
    found = coverage.documented(chain("ABS"))
    names = [row.delegate for row in found if row.delegate != "xnnpack"]
    assert names == ["gpu", "litert-gpu", "edgetpu", "ethos-u", "vx", "neutron", "qnn", "armnn", "neuron", "openvino"]
    assert all(row.how == "documented" and "https://" in row.source for row in found)


def test_edge_tpu_leaves_a_leading_quantize_and_the_last_dequantize() -> None:
    """The compiler's published log of an int8 digits model with float ends: eight ops mapped, those two not."""
    dtypes = ("float32", *("int8",) * 9, "float32")
    row = rows(chain("QUANTIZE", *_KERAS, "DEQUANTIZE", dtypes=dtypes))["edgetpu"]
    assert (row.taken, row.total, row.partitions) == (8, 10, 1)
    assert {refusal.op for refusal in row.refused} == {"QUANTIZE", "DEQUANTIZE"}
    assert row.partition == (-1, *(0,) * 8, -1)
    assert rows(chain(*_KERAS))["edgetpu"].taken == 8


def test_edge_tpu_stops_at_the_first_op_that_it_refuses() -> None:
    """Published: "that operation and everything after it executes on the CPU, even if supported operations occur"."""
    row = rows(chain("CONV_2D", "LEAKY_RELU", "CONV_2D", "CONV_2D", "ADD"))["edgetpu"]
    assert row.partition == (0, -1, -1, -1, -1)
    assert row.refused == (
        Refusal("CONV_2D", 2, "after the first op that it refuses"),
        Refusal("LEAKY_RELU", 1, "not in its table"),
        Refusal("ADD", 1, "after the first op that it refuses"),
    )


def test_edge_tpu_counts_by_place_and_tflite_by_what_is_ready() -> None:
    """The last op waits for the first one only: a TFLite delegate gathers it, the compiler has stopped before it."""
    tensors = tuple(Tensor(str(n), "int8", (1, 8), (1, 8)) for n in range(4))
    ops = (Op("RELU", 1, (0,), (1,)), Op("CUMSUM", 1, (1,), (2,)), Op("TANH", 1, (1,), (3,)))
    found = rows(ModelFile((Graph("main", tensors, ops, (0,), (2, 3)),), ()))
    assert found["edgetpu"].partition == (0, -1, -1)
    assert found["vx"].partition == (0, -1, 0)


def test_gpu_takes_its_largest_partition_only() -> None:
    """max_delegated_partitions is 1 by default: the larger half is kept, wherever it stands."""
    row = rows(chain("CONV_2D", "ARG_MAX", "CONV_2D", "RELU"))["gpu"]
    assert row.partition == (-1, -1, 0, 0)
    assert row.refused[0] == Refusal("CONV_2D", 1, "outside the largest partition")


def test_other_delegates_take_every_partition() -> None:
    """Ethos-U has no CUMSUM: two pieces, both taken."""
    row = rows(chain("ABS", "CUMSUM", "RELU", "CUMSUM", "CUMSUM"))["ethos-u"]
    assert (row.taken, row.partitions, row.partition) == (2, 2, (0, -1, 1, -1, -1))
    assert row.refused == (Refusal("CUMSUM", 3, "not in its table"),)
    assert row.reason == ""


def test_a_delegate_that_takes_nothing_says_why() -> None:
    """A float model on an integer device: no lane of the picture, one line instead."""
    row = rows(chain("CONV_2D", "CONV_2D", "RELU", dtypes=("float32",) * 4))["edgetpu"]
    assert (row.taken, row.total, row.partitions, row.partition) == (0, 3, 0, ())
    assert row.reason == "takes no op; CONV_2D: float32 (takes int8, uint8)"


def test_open_dimensions_are_those_of_the_signature() -> None:
    """The stored shape of an open dimension is 1; the signature tells that it is open."""
    model = chain("RELU")
    tensors = tuple(Tensor(t.name, t.dtype, (1, 8), (-1, 8)) for t in model.graphs[0].tensors)
    opened = ModelFile((Graph("main", tensors, model.graphs[0].ops, (0,), (1,)),), ())
    assert rows(opened)["ethos-u"].refused == (Refusal("RELU", 1, "open dimension"),)
    assert rows(model)["ethos-u"].taken == 1


def test_weights_are_constants_and_variables_are_not() -> None:
    """A tensor that no op makes is a constant, unless it is an input or a state."""
    tensors = tuple(Tensor(n, "int8", (1, 4, 4, 1), (1, 4, 4, 1), variable=n == "state") for n in ("x", "w", "b", "y"))
    state = (tensors[0], Tensor("state", "int8", (1, 4, 4, 1), (1, 4, 4, 1), variable=True), *tensors[2:])
    for held, reason in ((tensors, ""), (state, "input 1 is computed")):
        graph = Graph("main", held, (Op("CONV_2D", 1, (0, 1, 2), (3,)),), (0,), (3,))
        assert tflite_coverage.covered(ModelFile((graph,), ()), tflite_coverage.EDGETPU).refused == (reason,)


def test_an_empty_graph_is_no_error() -> None:
    """Nothing to take: zero of zero, and no reason."""
    row = coverage.documented(ModelFile((Graph("main", (), (), (), ()),), ()))[0]
    assert (row.taken, row.total, row.partitions, row.reason) == (0, 0, 0, "")


def test_an_absent_runtime_is_told_by_its_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tflite-runtime is not installed, its XNNPACK is documented: no quantized kernels, so no int8."""
    monkeypatch.setattr(
        tflite_runtime, "RUNTIMES", (tflite_runtime.Runtime("tflite-runtime", "there_is_no_such_package"),)
    )
    found = [row for row in coverage.documented(chain("ABS")) if row.delegate == "xnnpack"]
    assert [(row.how, row.taken) for row in found] == [("documented", 0)]
    assert "tflite-runtime 2.14" in found[0].source


def test_a_death_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that dies of the model is told with its stage; the other one is still asked."""
    (tmp_path / "m.tflite").write_bytes(tinymodel.dense_model())
    both = (tflite_runtime.Runtime("ai-edge-litert", "json"), tflite_runtime.Runtime("tflite-runtime", "json"))
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", both)

    def run(module: str, job: dict[str, str], *_: object) -> dict[str, object]:
        if job["runtime"] == "tflite-runtime":
            raise DiedError("loading it on tflite-runtime", -11, "")
        return {"version": "9.9", "partition": [0]}

    monkeypatch.setattr(child, "run", run)
    alive, dead = coverage.measured(tmp_path / "m.tflite", tmp_path, lambda _: None)
    assert (alive.source, alive.taken, alive.total, alive.partitions) == ("ai-edge-litert 9.9", 1, 1, 1)
    assert (dead.how, dead.taken, dead.total, dead.partition) == ("measured", 0, 1, ())
    assert "SIGSEGV" in dead.reason
    assert "loading it on tflite-runtime" in dead.reason


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    """Before any child is started."""
    (tmp_path / "m.tflite").write_bytes(b"no model")
    with pytest.raises(BadDataError, match=r"m\.tflite"):
        coverage.measured(tmp_path / "m.tflite", tmp_path, lambda _: None)
