"""The bundle: one directory (or its .tar) that holds a model and everything needed to trust and to serve it.

`bundle.json` names every other file with its sha256 and size. Reading checks both before any byte is used, and keeps
the bytes in memory: a file that changes on disk afterwards changes nothing. The same content gives the same bytes
(no dates, sorted keys), so a bundle can be compared by hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from edged.errors import BadDataError
from edged.manifest import (
    FORMAT,
    GOLDEN,
    KNOWN_FILES,
    LABELS,
    MANIFEST,
    MODEL,
    MODEL_CPU,
    REPORT,
    Calibration,
    Converter,
    FileEntry,
    ImagePreprocess,
    InputRange,
    Manifest,
    Postprocess,
    Quality,
    Requirements,
    Signature,
    TensorSpec,
    dump,
    parse,
)

__all__ = [
    "FORMAT",
    "GOLDEN",
    "KNOWN_FILES",
    "LABELS",
    "MANIFEST",
    "MODEL",
    "MODEL_CPU",
    "REPORT",
    "Bundle",
    "Calibration",
    "Converter",
    "FileEntry",
    "Golden",
    "ImagePreprocess",
    "InputRange",
    "Manifest",
    "Postprocess",
    "Quality",
    "Requirements",
    "Signature",
    "TensorSpec",
    "read",
    "write",
]  # fmt: skip


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
        if not data.startswith(b"PK"):  # np.load would also take a bare array
            msg = f"{GOLDEN} is not an .npz"
            raise ValueError(msg)
        groups: dict[str, dict[str, Any]] = {"input": {}, "reference": {}, "float": {}, "tolerance": {}}
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                for key in file.files:
                    group, _, name = key.partition("/")
                    groups[group][name] = file[key]
        except (KeyError, OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as exc:
            msg = f"{GOLDEN} cannot be read: {exc}"
            raise ValueError(msg) from exc
        tolerance = {name: float(value) for name, value in groups["tolerance"].items()}
        return cls(groups["input"], groups["reference"], groups["float"], tolerance)


@dataclass(frozen=True)
class Bundle:
    """A verified bundle, its files in memory."""

    path: Path
    manifest: Manifest
    files: Mapping[str, bytes]

    @property
    def model(self) -> bytes:
        """The bytes of `model.tflite`."""
        return self.files[MODEL]

    @property
    def model_sha256(self) -> str:
        """Lower-case hex sha256 of the model."""
        return self.manifest.files[MODEL].sha256

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, one a line of labels.txt; empty when the bundle has none."""
        return tuple(self.files[LABELS].decode().splitlines()) if LABELS in self.files else ()

    @property
    def signature(self) -> Signature:
        """What codecs need to know."""
        m = self.manifest
        return Signature(m.inputs, m.outputs, m.preprocess, m.postprocess, self.labels, m.signature)

    def golden(self) -> Golden | None:
        """The golden samples; None when the bundle has none. Raises BadDataError when they cannot be read."""
        if GOLDEN not in self.files:
            return None
        try:
            return Golden.from_bytes(self.files[GOLDEN])
        except ValueError as exc:
            raise BadDataError(str(self.path), str(exc)) from exc


def write(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Write a bundle to the new directory `path`, or to a .tar when the name ends so.

    `manifest.files` is filled in from `files`. Raises BadDataError for an unknown file name or a missing model, and
    FileExistsError when `path` is there already; on any error nothing is left behind under `path`.
    """
    unknown = sorted(set(files) - KNOWN_FILES)
    if unknown or MODEL not in files:
        raise BadDataError(
            str(path), f"a bundle holds {MODEL} and at most {sorted(KNOWN_FILES)}", f"got {sorted(files)}"
        )
    entries = {name: FileEntry(hashlib.sha256(data).hexdigest(), len(data)) for name, data in sorted(files.items())}
    manifest = dataclasses.replace(manifest, files=entries)
    everything = {MANIFEST: dump(manifest), **files}
    parse(everything[MANIFEST], f"{path}/{MANIFEST}")  # nothing is written that could not be read
    if path.exists():
        raise FileExistsError(path)
    part = path.with_name(path.name + ".part")
    _remove(part)  # of a writer that was killed
    try:
        _write_part(part, everything)
        part.rename(path)
    finally:
        _remove(part)  # gone already when all went well


def _write_part(part: Path, files: Mapping[str, bytes]) -> None:
    if part.name.endswith(".tar.part"):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(_tar(files))
        return
    part.mkdir(parents=True)
    for name, data in files.items():
        (part / name).write_bytes(data)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read(path: Path) -> Bundle:
    """Read and verify a bundle (directory or .tar) into memory.

    Raises BadDataError naming the file that is missing, unknown, too long, too short or not as hashed, or the key of
    `bundle.json` that is wrong.
    """
    raw = _read_tar(path) if path.is_file() else _read_directory(path)
    if MANIFEST not in raw:
        raise BadDataError(str(path), f"no {MANIFEST}", "is this a bundle made by `edged convert`?")
    manifest = parse(raw[MANIFEST], f"{path}/{MANIFEST}")
    files = {name: _verified(path, name, entry, raw) for name, entry in manifest.files.items()}
    if MODEL not in files:
        raise BadDataError(str(path), f"{MANIFEST} lists no {MODEL}")
    return Bundle(path, manifest, files)


def _read_directory(path: Path) -> dict[str, bytes]:
    if not path.is_dir():
        raise BadDataError(str(path), "no such bundle", "a directory or .tar made by `edged convert`")
    try:
        return {p.name: p.read_bytes() for p in path.iterdir() if p.name in KNOWN_FILES | {MANIFEST} and p.is_file()}
    except OSError as exc:
        raise BadDataError(str(path), f"cannot be read: {exc}") from exc


def _read_tar(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path, mode="r:") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None and name in KNOWN_FILES | {MANIFEST}:
                    files[name] = content.read()
    except (tarfile.TarError, OSError) as exc:
        raise BadDataError(str(path), f"cannot be read as .tar: {exc}") from exc
    return files


def _verified(path: Path, name: str, entry: FileEntry, raw: Mapping[str, bytes]) -> bytes:
    data = raw.get(name)
    if data is None:
        raise BadDataError(str(path), f"{name} is missing", f"{MANIFEST} lists it")
    if len(data) != entry.size:
        raise BadDataError(str(path), f"{name} has {len(data)} bytes, {MANIFEST} says {entry.size}", "copy it again")
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise BadDataError(str(path), f"{name} does not match its sha256", "damaged or changed: copy it again")
    return data
