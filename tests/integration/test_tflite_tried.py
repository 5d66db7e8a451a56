"""Model files on the runtimes that are really here, each in a child with limits; two commands that tell the same."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import require, tflitefiles, tinymodel
from support.commands import edged

from converters import coverage
from edged.commands import _runtimes
from edged.engines import op_versions_probe, tflite_runtime, tflite_tried
from edged.engines.tflite_coverage import Coverage
from edged.engines.tflite_tried import Tried
from edged.limits import Limits

MIB = 1 << 20


@pytest.fixture(autouse=True)
def any_runtime() -> None:
    """A TFLite runtime, whichever: missing on a laptop is a skip, missing in CI a failure."""
    require.any_runtime()


def tried(folder: Path, model: bytes, limits: Limits) -> tuple[Tried, ...]:
    (folder / "m.tflite").write_bytes(model)
    found = tflite_tried.tried(folder / "m.tflite", limits)
    assert {one.runtime for one in found} == {runtime.name for runtime in tflite_runtime.installed()}
    return found


def greedy(elements: int) -> bytes:
    """The dense model with a variable that no op uses; a runtime fills it with zeros when it allocates tensors."""
    schema = tflitefiles.schema()
    loaded = schema.ModelT.InitFromPackedBuf(bytearray(tinymodel.dense_model()), 0)
    state = tflitefiles.part("Tensor", name="v", type=schema.TensorType.FLOAT32, shape=[elements], isVariable=True)
    loaded.subgraphs[0].tensors.append(state)
    return tflitefiles.packed(**vars(loaded))


def test_a_model_that_wants_much_memory_costs_its_child(tmp_path: Path) -> None:
    """A file of a kilobyte asks for a gigabyte: it is ended long before. With room enough such a file loads."""
    for one in tried(tmp_path, greedy(256 * MIB), Limits(60, 300 * MIB)):
        assert one.loads is False
        assert re.fullmatch(r"its process held 0\.\d GiB of memory, 0\.3 GiB is the limit", one.reason)
    assert all(one.loads for one in tried(tmp_path, greedy(MIB), Limits(60, 300 * MIB)))


def range_bomb() -> bytes:
    """Half a kilobyte: RANGE from 0 to 2e9 over constants, which a runtime computes when it allocates tensors."""
    part, schema = tflitefiles.part, tflitefiles.schema()
    ends = [np.array(value, np.int32).tobytes() for value in (0, 2_000_000_000, 1)]
    tensors = [part("Tensor", name="x", type=schema.TensorType.INT32, shape=[1], buffer=0)]
    tensors += [part("Tensor", name=f"c{n}", type=schema.TensorType.INT32, shape=[], buffer=n) for n in (1, 2, 3)]
    tensors += [part("Tensor", name="y", type=schema.TensorType.INT32, shape=[0], buffer=0)]
    ops = [part("Operator", opcodeIndex=0, inputs=[1, 2, 3], outputs=[4])]
    return tflitefiles.packed(
        operatorCodes=[tflitefiles.code(schema.BuiltinOperator.RANGE)],
        subgraphs=[tflitefiles.graph(tensors, ops, [0], [4])],
        buffers=[tflitefiles.buffer(), *map(tflitefiles.buffer, ends)],
    )


def test_a_constant_of_gigabytes_costs_its_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended at the limit, by `inspect` and by the converter's own load; without one it takes 8 GB."""
    path = tmp_path / "m.tflite"
    path.write_bytes(range_bomb())
    monkeypatch.setattr("edged.limits.available", lambda: 800 * MIB)
    for one in _runtimes.tried(path):
        assert re.fullmatch(r"its process held \d\.\d GiB of memory, 0\.4 GiB is the limit", one.reason)
    for row in _measured(coverage.of(path, lambda _: None, Limits(60, 400 * MIB))):
        assert "0.4 GiB is the limit" in row.reason


def test_inspect_sets_a_limit_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is free, whatever that is now: here the machine is said to have 400 MiB."""
    monkeypatch.setattr("edged.limits.available", lambda: 400 * MIB)
    (tmp_path / "m.tflite").write_bytes(greedy(256 * MIB))
    for one in _runtimes.tried(tmp_path / "m.tflite"):
        assert re.fullmatch(r"its process held 0\.\d GiB of memory, 0\.2 GiB is the limit", one.reason)


def test_a_runtime_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that does not end is ended, and the next runtime is asked: all of them share the time."""
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tflite_tried, "_MODULE", "endless")
    found = tried(tmp_path, tinymodel.dense_model(), Limits(0.3))
    assert {one.loads for one in found} == {False}
    # What a child takes longer than its share the next one has less.
    shares = [float(re.fullmatch(r"its process was not done after ([\d.]+) s", one.reason)[1]) for one in found]  # type: ignore[index]
    assert sum(shares) <= 0.3 + 0.01


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: op_versions_probe.custom_model("FlexErf"), "it has no Flex delegate, which FlexErf needs"),
        (lambda: op_versions_probe.custom_model("Nobodys"), "it has no custom op Nobodys"),
        (lambda: tflitefiles.with_version(tinymodel.dense_model(), 99), "it has no FULLY_CONNECTED version 99"),
        (tflitefiles.written, "it has no builtin op of number"),
    ],
    ids=["flex", "custom", "version", "newer"],
)
def test_a_refusal_names_what_is_missing(tmp_path: Path, model: Any, says: str) -> None:
    """Both runtimes write lines for programmers; what is told is the op, in one clause."""
    for one in tried(tmp_path, model(), Limits(60)):
        assert (one.loads, one.partition) == (False, None)
        assert one.reason.startswith(says)


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """`kill -9` of the command leaves no runtime behind that goes on filling the memory."""
    (tmp_path / "m.tflite").write_bytes(greedy(4 * MIB))
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'edged.engines.tflite_describe' in ' '.join(sys.orig_argv):\n"
        f"    from edged import childprocess\n    end = childprocess.die_with_parent\n"
        "    def and_stay():\n"
        f"        end(); open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "        import time; time.sleep(60)\n"
        "    childprocess.die_with_parent = and_stay\n"
    )
    source = str(Path(tflite_tried.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])}
    command = [sys.executable, "-m", "edged", "inspect", str(tmp_path / "m.tflite")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as parent:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    child = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    deadline = time.monotonic() + 20
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("model", [tinymodel.dense_model, tinymodel.int8_model], ids=["float", "int8"])
def test_inspect_and_convert_tell_the_same(tmp_path: Path, model: Any) -> None:
    """The rows that a report gets are those that `edged inspect` prints: same delegates, figures and order."""
    path = tmp_path / "m.tflite"
    path.write_bytes(model())
    rows = coverage.of(path, lambda _: None, Limits())
    told = json.loads(edged("inspect", path, "--json").stdout)["delegates"]
    expected = json.loads(
        json.dumps([{"name": row.name, **dataclasses.asdict(row), "bound": row.bound} for row in rows])
    )
    assert told == [{key: value for key, value in row.items() if key != "partition"} for row in expected]


def _measured(rows: tuple[Coverage, ...]) -> list[Coverage]:
    return [row for row in rows if row.how == "measured"]
