"""Where the error comes from: every op's output in the converted file beside the float file's, sample by sample.

Both files run on one runtime with its own kernels, keeping all tensors; they are matched by name. An op's error holds
the errors of all ops before it, so the layer to look at is where it jumps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from converters import child, golden, parity
from converters.child import DiedError, OnStage
from converters.loadtest import Runner, load, save
from converters.report import LayerError
from converters.samples import Array
from edged.bundle import TensorSpec
from edged.engines import tflite_file, tflite_runtime
from edged.engines.tflite_file import Tensor
from edged.errors import EdgedError
from edged.limits import Limits
from edged.quant import dequantize

_MODULE = "converters.layers"
# Sums over these say enough; every tensor of every sample is held in between.
SAMPLES = 8


def compare(
    floats: Path, converted: Path, inputs: Mapping[str, Array], folder: Path, on_stage: OnStage, limits: Limits
) -> tuple[LayerError, ...]:
    """Return every op that both files have, worst first; nothing where a runtime does not survive it.

    floats, converted: the two files. inputs: real values, input name → [count, *shape].
    """
    folder.mkdir(parents=True)
    save(folder / "inputs.npz", {name: array[:SAMPLES] for name, array in inputs.items()})
    job = {"float": str(floats), "converted": str(converted)}
    try:
        found = child.run(_MODULE, job, folder, on_stage, limits)["layers"]
    except (DiedError, EdgedError):  # it explains a verdict that stands without it
        return ()
    return tuple(LayerError(**layer) for layer in found)


def _work(job: dict[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
    """Be the child."""
    on_stage("looking for the layers that lose accuracy")
    inputs = load(folder / "inputs.npz")
    sides = [_Side(Path(job[key])) for key in ("float", "converted")]
    sums: dict[str, _Sums] = {}
    for i in range(len(next(iter(inputs.values())))):
        sample = {name: array[i] for name, array in inputs.items()}
        real, found = (side.run(sample) for side in sides)
        for name in sorted(real.keys() & found.keys()):
            if real[name].shape == found[name].shape:
                sums.setdefault(name, _Sums()).add(real[name], found[name])
    layers = [
        {
            "index": index,
            "op": op,
            "tensor": name,
            "snr_db": sums[name].snr_db,
            "relative": sums[name].relative,
            "output": output,
        }
        for index, op, name, output in sides[1].ops()
        if name in sums
    ]
    return {"layers": sorted(layers, key=lambda layer: (layer["snr_db"], layer["index"]))}


class _Sums:
    """Signal and noise of one tensor over all samples."""

    def __init__(self) -> None:
        self._signal = self._noise = self._peak = self._worst = 0.0

    def add(self, real: Array, found: Array) -> None:
        a, error = real.astype(np.float64), found.astype(np.float64) - real.astype(np.float64)
        self._signal += float(np.square(a).sum())
        self._noise += float(np.square(error).sum())
        self._peak = max(self._peak, float(np.abs(a).max(initial=0.0)))
        self._worst = max(self._worst, float(np.abs(error).max(initial=0.0)))

    @property
    def snr_db(self) -> float:
        return round(parity.snr_db(self._signal, self._noise), 2)

    @property
    def relative(self) -> float:
        return float(f"{self._worst / self._peak if self._peak else self._worst:.4g}")


class _Side:
    """One file on a runtime that keeps every tensor."""

    def __init__(self, path: Path) -> None:
        model = path.read_bytes()
        file, module = tflite_file.read(model), tflite_runtime.installed()[0].module()
        self._graph = file.graphs[file.signatures[0].graph]
        self._outputs = {number: name for name, number in file.signatures[0].outputs.items()}
        self._inputs = [_spec(name, self._graph.tensors[number]) for name, number in file.signatures[0].inputs.items()]
        kernels = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self._runner = Runner(module, model, file.signatures[0].key, kernels, keep_tensors=True)

    def ops(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield the number, op name and tensor name of all that is computed, and the output that it is, "" for none."""
        for index, op in enumerate(self._graph.ops):
            for output in op.outputs:
                yield index, op.name, self._graph.tensors[output].name, self._outputs.get(output, "")

    def run(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """Return every computed tensor of real numbers, by name."""
        self._runner.run_one(golden.to_model(sample, self._inputs))
        computed = sorted({output for op in self._graph.ops for output in op.outputs})
        return {self._graph.tensors[number].name: value for number in computed for value in self._real(number)}

    def _real(self, number: int) -> Iterator[Array]:
        tensor = self._graph.tensors[number]
        value = self._runner.tensor(number)
        if value is not None and (tensor.dtype.startswith("float") or len(tensor.scales) == 1):
            yield dequantize(value, _spec(tensor.name, tensor)) if tensor.scales else value


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    scale, zero_point = (tensor.scales[0], tensor.zero_points[0]) if len(tensor.scales) == 1 else (0.0, 0)
    dtype: Any = tensor.dtype
    return TensorSpec(name, dtype, tensor.shape, scale, zero_point)


if __name__ == "__main__":
    child.main(_work)
