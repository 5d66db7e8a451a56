"""Golden samples: inputs with known answers, as a bundle carries them, and what makes them worth checking against."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edged import npzread
from edged.manifest import GOLDEN, Manifest, TensorSpec

# What the arrays may take in memory: a few hundred kilobytes can unpack to gigabytes.
MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Golden:
    """Samples with known answers. Arrays are stacked along a new first axis, in the client's dtypes.

    inputs, reference (the converted model on the CPU), float_outputs (the SavedModel): by signature name.
    tolerance: by output name, the largest absolute difference from `reference` that a delegate may show.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    reference: Mapping[str, npt.NDArray[Any]]
    float_outputs: Mapping[str, npt.NDArray[Any]]
    tolerance: Mapping[str, float]

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.inputs.values()))) if self.inputs else 0

    def to_bytes(self) -> bytes:
        """Serialise as .npz; the same arrays give the same bytes."""
        groups = {"input": self.inputs, "reference": self.reference, "float": self.float_outputs}
        arrays = {f"{group}/{name}": array for group, named in groups.items() for name, array in sorted(named.items())}
        arrays |= {f"tolerance/{name}": np.array(value, np.float64) for name, value in sorted(self.tolerance.items())}
        out = io.BytesIO()
        np.savez_compressed(out, **arrays)
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Golden:
        """Read what `to_bytes` wrote; raises ValueError on anything else."""
        groups: dict[str, dict[str, Any]] = {"input": {}, "reference": {}, "float": {}, "tolerance": {}}
        try:
            for key, array in npzread.arrays(io.BytesIO(data), MAX_BYTES).items():
                group, _, name = key.partition("/")
                groups[group][name] = array
            tolerance = {name: float(value) for name, value in groups["tolerance"].items()}
        except (KeyError, TypeError, ValueError) as exc:  # another group; a tolerance that is no single number
            raise ValueError(f"{GOLDEN} cannot be read: {exc}") from exc
        return cls(groups["input"], groups["reference"], groups["float"], tolerance)

    def problems(self, manifest: Manifest) -> Iterator[str]:
        """Yield why these samples cannot vouch for a model: each tensor needs one of its own for every sample."""
        if not self.samples:
            yield "there is no sample"
        for group, specs, arrays in (
            ("input", manifest.inputs, self.inputs), ("reference", manifest.outputs, self.reference),
        ):  # fmt: skip
            for spec in specs:
                yield from self._misfit(group, spec, arrays.get(spec.name))
        for spec in manifest.outputs:
            if not 0 <= self.tolerance.get(spec.name, math.nan) < math.inf:
                yield f"the tolerance of {spec.name!r} is {self.tolerance.get(spec.name)}"

    def _misfit(self, group: str, spec: TensorSpec, array: npt.NDArray[Any] | None) -> Iterator[str]:
        wanted = (self.samples, *spec.shape)
        if array is None:
            yield f"{group} {spec.name!r} is missing"
        elif array.shape != wanted or array.dtype != spec.wire_dtype:
            found = f"{array.dtype}{list(array.shape)}"
            yield f"{group} {spec.name!r} is {found}, not {spec.wire_dtype}{list(wanted)}"
