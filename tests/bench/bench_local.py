"""What shared memory costs: a frame of 602,112 bytes from a producer on the same box, beyond the one copy it needs.

python tests/bench/bench_local.py [--json] [--repeats 7] [--requests 300]

The model only takes the first 16 elements of its input. Each frame is written anew before its request, into the slot
of a producer or into an array of this process, as a camera would; that is not timed. Then, in microseconds:

copy       into the tensor of an Interpreter in this process, alone
engine     the same copy and the invoke, in this process
slot       the round trip of a frame that lies in a slot: announced, copied into the tensor, run, answered
array      the same, but from an array of the producer's: one copy more, into the slot
beyond     (slot at 602,112 bytes - slot at 64 bytes) - copy: what the size adds beyond one copy

All run interleaved; each figure is the median over the repeats of that repeat's P50, with the range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.localbox import LocalBox  # noqa: E402

from edged import LocalProducer, bundle  # noqa: E402
from edged.engines import tflite_runtime  # noqa: E402

SMALL, LARGE = 64, 602_112
DTYPES = ("uint8", "float32")
CLAIM_US = 60.0

Timed = Callable[[], float]


def write_bundle(path: Path, size: int, dtype: str) -> bytes:
    """Write a bundle of `size` bytes in -> 16 elements out; returns the model."""
    schema = tinymodel._schema()
    kind, shape = getattr(schema.TensorType, dtype.upper()), (1, size // np.dtype(dtype).itemsize)
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 1, 2], [3]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.SliceOptions, schema.SliceOptionsT()
    tensors = [
        tinymodel._tensor("x", shape, kind, 0),
        tinymodel._tensor("begin", (2,), schema.TensorType.INT32, 1),
        tinymodel._tensor("size", (2,), schema.TensorType.INT32, 2),
        tinymodel._tensor("y", (1, 16), kind, 0),
    ]
    constants = [b"", np.array([0, 0], np.int32).tobytes(), np.array([1, 16], np.int32).tobytes()]
    model = tinymodel._pack(tensors, constants, [(schema.BuiltinOperator.SLICE, op)], {"x": 0}, {"y": 3})
    specs = (tinymodel.spec("x", shape, dtype),), (tinymodel.spec("y", (1, 16), dtype),)
    bundle.write(path, tinymodel._manifest("first", 1, *specs), {bundle.MODEL: model})
    return model


def timed(call: Callable[[], object]) -> float:
    """Microseconds of one call."""
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) / 1000


class InProcess:
    """An Interpreter of this process, its tensor filled by one copy."""

    def __init__(self, model: bytes, source: Any) -> None:
        self.interpreter = tflite_runtime.installed()[0].module().Interpreter(model_content=model)
        self.interpreter.allocate_tensors()
        detail = self.interpreter.get_input_details()[0]
        self.source, self.frame = source, np.empty_like(source)
        view = self.interpreter.tensor(detail["index"])()
        self.tensor = np.frombuffer(
            (np.ctypeslib.ctypes.c_uint8 * view.nbytes).from_address(view.ctypes.data), source.dtype
        )

    def copy(self) -> float:
        np.copyto(self.frame, self.source)
        return timed(lambda: np.copyto(self.tensor, self.frame))

    def engine(self) -> float:
        np.copyto(self.frame, self.source)
        return timed(self._serve)

    def _serve(self) -> None:
        np.copyto(self.tensor, self.frame)
        self.interpreter.invoke()


class OverTheSocket:
    """A producer of the daemon."""

    def __init__(self, producer: LocalProducer, model: str, source: Any) -> None:
        self.producer, self.model, self.source = producer, model, source
        self.frame = source.reshape(1, -1).copy()

    def slot(self) -> float:
        with self.producer.slot() as slot:
            np.copyto(slot.view(self.source.shape, self.source.dtype), self.source)
            return timed(lambda: slot.infer(self.source.nbytes, model=self.model))

    def array(self) -> float:
        np.copyto(self.frame, self.source.reshape(1, -1))
        return timed(lambda: self.producer.infer(self.frame, model=self.model, codec="raw"))


def variants(producer: LocalProducer, folder: Path, models: dict[str, bytes]) -> dict[str, Timed]:
    """What is timed, by "dtype size what"."""
    found: dict[str, Timed] = {}
    for name, model in models.items():
        dtype, size = name.split("-")
        source = np.arange(int(size), dtype=np.uint8).view(dtype)
        source = np.nan_to_num(source)  # bytes in a row are no number now and then
        here, there = InProcess(model, source), OverTheSocket(producer, name, source)
        calls = {"copy": here.copy, "engine": here.engine, "slot": there.slot, "array": there.array}
        found |= {f"{dtype} {size} {what}": call for what, call in calls.items()}
    return found


def measure(repeats: int, requests: int) -> dict[str, list[float]]:
    """P50 of each repeat in microseconds, by variant."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        os.environ["XDG_STATE_HOME"] = directory
        names = [f"{dtype}-{size}" for dtype in DTYPES for size in (SMALL, LARGE)]
        models = {name: write_bundle(folder / name, int(name.split("-")[1]), name.split("-")[0]) for name in names}
        with (
            LocalBox({name: folder / name for name in names}) as box,
            LocalProducer(box.socket) as producer,
        ):
            calls = variants(producer, folder, models)
            for name in names:  # the daemon may still be starting
                size, dtype = int(name.split("-")[1]), name.split("-")[0]
                producer.infer(np.zeros((1, size // np.dtype(dtype).itemsize), dtype), model=name, deadline_ms=60_000)
            found: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(repeats):
                for name, call in calls.items():
                    found[name].append(statistics.median(call() for _ in range(requests)))
    return found


def beyond(found: dict[str, list[float]], dtype: str) -> list[float]:
    """What the size adds beyond one copy, in each repeat."""
    columns = (found[f"{dtype} {LARGE} slot"], found[f"{dtype} {SMALL} slot"], found[f"{dtype} {LARGE} copy"])
    return [large - small - copy for large, small, copy in zip(*columns, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--requests", type=int, default=300)
    args = parser.parse_args()
    facts, found = report.facts(), measure(args.repeats, args.requests)
    claims = {dtype: beyond(found, dtype) for dtype in DTYPES}
    if args.json:
        print(json.dumps({"host": facts, "p50_us": found, "beyond_us": claims}))
    else:
        print(report.line(facts))
        rows = {**found, **{f"{dtype} beyond": values for dtype, values in claims.items()}}
        for name, values in rows.items():
            print(f"{name:26}{statistics.median(values):10.1f} us ({min(values):.1f}-{max(values):.1f})")
    return 0 if all(statistics.median(values) < CLAIM_US for values in claims.values()) else 1


if __name__ == "__main__":
    report.run(main)
