"""A .tflite file in a bare Interpreter, in a process of its own, by signature names. No edged in it.

As a script: zoobare.py PACKAGE MODEL INPUTS.npz OUTPUTS.npz KERNELS, prints {"p50_us": …}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

RUNTIMES = {"ai-edge-litert": "ai_edge_litert.interpreter", "tflite-runtime": "tflite_runtime.interpreter"}
REFERENCE, DEFAULT = "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "AUTO"
TIMED = 15


def installed() -> list[str]:
    """Return the names of the runtimes that are here."""
    return [name for name, module in RUNTIMES.items() if find_spec(module.split(".")[0])]


@dataclass(frozen=True)
class Run:
    """What came of it. answers: output → [n, *shape], real numbers; error: why there are none."""

    answers: Arrays
    p50_us: float = 0.0
    error: str = ""


def run(model: Path, inputs: Arrays, runtime: str = "ai-edge-litert", kernels: str = REFERENCE) -> Run:
    """Run samples [n, *shape without batch] one by one; integer tensors are scaled from and to real numbers."""
    with tempfile.TemporaryDirectory() as folder:
        source, sink = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, **inputs)
        command = [sys.executable, __file__, RUNTIMES[runtime], str(model), str(source), str(sink), kernels]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)
        if done.returncode:
            return Run({}, error=f"exit {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}")
        with np.load(sink) as file:
            return Run({name: file[name] for name in file.files}, json.loads(done.stdout)["p50_us"])


def _main(package: str, model: str, source: str, sink: str, kernels: str) -> None:
    module = import_module(package)
    kind = getattr(module.OpResolverType, kernels)
    interpreter = module.Interpreter(model_content=Path(model).read_bytes(), experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    (key,) = interpreter.get_signature_list()
    runner = interpreter.get_signature_runner(key)
    with np.load(source) as file:
        inputs = {name: file[name] for name in file.files}
    found, times = [], []
    for i in range(len(next(iter(inputs.values())))):
        sample = {name: _stored(inputs[name][i], detail) for name, detail in runner.get_input_details().items()}
        begun = time.perf_counter_ns()
        answer = runner(**sample)
        times.append((time.perf_counter_ns() - begun) / 1000)
        found.append({name: _real(answer[name], detail) for name, detail in runner.get_output_details().items()})
    np.savez(sink, **{name: np.concatenate([answer[name] for answer in found]) for name in found[0]})
    print(json.dumps({"p50_us": float(np.median(times[1 : TIMED + 1] or times))}))


def _stored(values: npt.NDArray[Any], detail: dict[str, Any]) -> npt.NDArray[Any]:
    """Return one sample as the tensor holds it, with its batch of 1."""
    scale, zero = detail["quantization"]
    if not scale:
        return values[np.newaxis].astype(detail["dtype"])
    limits = np.iinfo(detail["dtype"])
    steps = np.rint(values / np.float32(scale)) + zero
    stored: npt.NDArray[Any] = np.clip(steps, limits.min, limits.max).astype(detail["dtype"])
    return stored[np.newaxis]


def _real(values: npt.NDArray[Any], detail: dict[str, Any]) -> npt.NDArray[Any]:
    scale, zero = detail["quantization"]
    return (values.astype(np.float64) - zero) * scale if scale else np.array(values)


if __name__ == "__main__":
    _main(*sys.argv[1:])
