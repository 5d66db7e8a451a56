"""Coverage rows: what tables say of whole graphs, what a runtime's partitions, refusal or silence become."""

from __future__ import annotations

import pytest

from delegates.optables import TABLES
from delegates.optables_devices import EDGETPU, VX
from edged.engines import tflite_coverage, tflite_runtime
from edged.engines.tflite_coverage import Coverage, Refusal
from edged.engines.tflite_file import Graph, ModelFile, Op, Tensor
from edged.engines.tflite_tried import Tried

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
    return {row.delegate: row for row in tflite_coverage.documented(model)}


def tried(runtime: str = "ai-edge-litert", partition: tuple[int, ...] | None = None, reason: str = "") -> Tried:
    """A runtime of version 9.9 that loads a file, or refuses it with a reason."""
    return Tried(runtime, "9.9", not reason, reason, partition)


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runtimes are known and neither is installed."""
    absent = tuple(tflite_runtime.Runtime(r.name, "there_is_no_such_package") for r in tflite_runtime.RUNTIMES)
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", absent)


def test_every_delegate_has_a_row_that_says_how_it_is_known() -> None:
    """The delegates the fleet may have, each once, with its document."""
    found = tflite_coverage.documented(chain("ABS"))
    names = [row.delegate for row in found if row.delegate != "xnnpack"]
    assert names == [
        "gpu_tflite", "gpu", "edgetpu", "ethos_u", "vx", "neutron", "qnn", "armnn", "neuron", "npu_openvino"
    ]  # fmt: skip
    assert all(row.how == "documented" and "https://" in row.source for row in found)
    assert set(tflite_coverage.names()) == {*names, "xnnpack"}


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
    row = rows(chain("CONV_2D", "ARG_MAX", "CONV_2D", "RELU"))["gpu_tflite"]
    assert row.partition == (-1, -1, 0, 0)
    assert row.refused[0] == Refusal("CONV_2D", 1, "outside the largest partition")


def test_other_delegates_take_every_partition() -> None:
    """Ethos-U has no CUMSUM: two pieces, both taken."""
    row = rows(chain("ABS", "CUMSUM", "RELU", "CUMSUM", "CUMSUM"))["ethos_u"]
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
    assert rows(opened)["ethos_u"].refused == (Refusal("RELU", 1, "open dimension"),)
    assert rows(model)["ethos_u"].taken == 1


def test_weights_are_constants_and_variables_are_not() -> None:
    """A tensor that no op makes is a constant, unless it is an input or a state."""
    tensors = tuple(Tensor(n, "int8", (1, 4, 4, 1), (1, 4, 4, 1), variable=n == "state") for n in ("x", "w", "b", "y"))
    state = (tensors[0], Tensor("state", "int8", (1, 4, 4, 1), (1, 4, 4, 1), variable=True), *tensors[2:])
    for held, refused in ((tensors, ()), (state, (Refusal("CONV_2D", 1, "input 1 is computed"),))):
        graph = Graph("main", held, (Op("CONV_2D", 1, (0, 1, 2), (3,)),), (0,), (3,))
        assert tflite_coverage.by_table(ModelFile((graph,), ()), EDGETPU).refused == refused


def test_an_empty_graph_is_no_error() -> None:
    """Nothing to take: zero of zero, no reason, and no fault of the delegate's."""
    row = rows(ModelFile((Graph("main", (), (), (), ()),), ()))["gpu_tflite"]
    assert (row.taken, row.total, row.partitions, row.reason) == (0, 0, 0, "")
    assert tflite_coverage.without_use([row], "gpu_tflite") == ()


@pytest.mark.usefixtures("nothing_here")
def test_an_absent_runtime_is_told_by_its_document() -> None:
    """Where tflite-runtime is not installed, its XNNPACK is documented: no quantized kernels, so no int8."""
    found = {row.runtime: row for row in tflite_coverage.documented(chain("LOGISTIC")) if row.delegate == "xnnpack"}
    assert {name: (row.how, row.taken) for name, row in found.items()} == {
        "ai-edge-litert": ("documented", 1),
        "tflite-runtime": ("documented", 0),
    }
    assert "tflite-runtime 2.14" in found["tflite-runtime"].source


def test_a_measured_row() -> None:
    """Counts by hand: two pieces of three ops, and one op left, without a reason."""
    row = tflite_coverage.of_runtime(chain("ABS", "CUMSUM", "RELU", "TANH"), tried(partition=(0, -1, 1, 1)))
    assert (row.how, row.source, row.taken, row.total, row.partitions) == ("measured", "ai-edge-litert 9.9", 3, 4, 2)
    assert (row.refused, row.partition, row.reason) == ((Refusal("CUMSUM", 1),), (0, -1, 1, 1), "")


def test_partitions_whose_ops_are_not_told() -> None:
    """Two partitions, one of known ops, one of either of two: at least two ops of four, none refused falsely."""
    known = Tried("ai-edge-litert", "9.9", True, "", (0, -2, -2, -1), 2)
    row = tflite_coverage.of_runtime(chain("ABS", "RELU", "RELU", "TANH"), known)
    assert (row.bound, row.taken, row.total, row.partitions) == ("at least", 2, 4, 2)
    assert row.refused == (Refusal("TANH", 1),)
    assert tflite_coverage.of_runtime(chain("ABS"), tried(partition=(0,))).bound == ""
    found = rows(chain("RELU", dtypes=("float32", "float32")))
    assert (found["vx"].bound, found["edgetpu"].taken, found["edgetpu"].bound) == ("at most", 0, "")


def test_a_graph_that_is_too_large_for_tables() -> None:
    """Each delegate says that it was not looked at, and nobody is told that it is of no use."""
    model = chain(*["RELU"] * (tflite_coverage._MOST_LINKS // 3 + 1))
    for row in tflite_coverage.documented(model):
        assert (row.taken, row.reason.startswith("not told")) == (0, True)
        assert tflite_coverage.without_use([row], row.delegate) == ()


def test_many_partitions_are_numbered_in_time() -> None:
    """Each is looked up once: 20,000 numbers in a list would take minutes, and the time-out of the test is that."""
    partition = [n // 2 if n % 2 else -1 for n in range(400_000)]
    assert tflite_coverage._kept(VX, partition) == tuple(partition)


def test_a_runtime_that_refuses_has_a_row_with_its_reason() -> None:
    """Not left out: it takes nothing, and says why."""
    row = tflite_coverage.of_runtime(chain("ABS"), tried(reason="it has no ABS version 9"))
    assert (row.how, row.taken, row.total, row.partition) == ("measured", 0, 1, ())
    assert row.reason == "it has no ABS version 9"


@pytest.mark.parametrize("loads", [True, None])
def test_a_runtime_that_does_not_tell_is_judged_by_its_document(loads: bool | None) -> None:
    """One that loads the file but lists other ops, and one that does not work here: neither refuses anything."""
    row = tflite_coverage.of_runtime(chain("LOGISTIC"), Tried("ai-edge-litert", "9.9", loads))
    assert (row.how, row.runtime, row.taken, row.reason) == ("documented", "ai-edge-litert", 1, "")


@pytest.mark.usefixtures("nothing_here")
def test_names_tell_rows_apart() -> None:
    """Both runtimes bring an XNNPACK, measured or documented: every row has a name of its own, and XNNPACK is first."""
    model = chain("LOGISTIC")
    found = tflite_coverage.rows(model, ())
    assert [row.name for row in found[:3]] == ["xnnpack (ai-edge-litert)", "xnnpack (tflite-runtime)", "gpu_tflite"]
    assert len({row.name for row in found}) == len(found) == len(TABLES)
    measured = tflite_coverage.of_runtime(model, tried(partition=(0,)))
    assert (measured.name, measured.runtime) == ("xnnpack (ai-edge-litert 9.9)", "ai-edge-litert")


def test_what_was_measured_is_not_told_by_its_document_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runtimes here, one of which refuses the model: two rows of XNNPACK, the first ones, of names of their own."""
    here = tuple(tflite_runtime.Runtime(runtime.name, "json") for runtime in tflite_runtime.RUNTIMES)
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", here)
    both = (tried(partition=(0,)), tried("tflite-runtime", reason="it has no LOGISTIC version 9"))
    found = tflite_coverage.rows(chain("LOGISTIC"), both)
    names = [row.name for row in found if row.delegate == "xnnpack"]
    assert names == ["xnnpack (ai-edge-litert 9.9)", "xnnpack (tflite-runtime 9.9)"] == [row.name for row in found[:2]]


def test_a_measured_row_comes_before_a_document() -> None:
    """LiteRT, measured, takes the model; tflite-runtime, which is not here, would not: XNNPACK is of use."""
    measured = tflite_coverage.of_runtime(chain("LOGISTIC"), tried(partition=(0,)))
    absent = Coverage("xnnpack", "documented", _document("tflite-runtime"), 0, 1, 0, reason="takes no op")
    assert tflite_coverage.without_use([absent, measured], "xnnpack") == ()
    assert tflite_coverage.without_use([absent], "xnnpack") == (absent,)
    left = tflite_coverage.of_runtime(chain("LOGISTIC"), tried(partition=(-1,)))
    takes = Coverage("xnnpack", "documented", _document("tflite-runtime"), 1, 1, 1)
    assert tflite_coverage.without_use([takes, left], "xnnpack") == (left,)


def test_on_every_runtime_that_is_named() -> None:
    """Of two runtimes one takes the model: enough where none is named, and where the other one is not."""
    takes, left = (
        tflite_coverage.of_runtime(chain("LOGISTIC"), tried(name, (number,)))
        for name, number in (("ai-edge-litert", 0), ("tflite-runtime", -1))
    )
    both = (takes, left)
    assert tflite_coverage.without_use(both, "xnnpack") == ()
    assert tflite_coverage.without_use(both, "xnnpack", ["ai-edge-litert"]) == ()
    assert tflite_coverage.without_use(both, "xnnpack", ["tflite-runtime"]) == (left,)
    assert tflite_coverage.without_use(both, "xnnpack", ["tflite-runtime", "ai-edge-litert"]) == (left,)


def test_other_delegates_have_no_runtime() -> None:
    """The Edge TPU is judged by its table, whatever runtime stands beside it."""
    row = rows(chain("CONV_2D", dtypes=("float32", "float32")))["edgetpu"]
    assert row.runtime == ""
    assert tflite_coverage.without_use([row], "edgetpu", ["tflite-runtime"]) == (row,)


def _document(runtime: str) -> str:
    return next(table.document for table in TABLES if table.runtime == runtime)
