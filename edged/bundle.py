"""The bundle: one directory (or its .tar) that holds a model and everything needed to trust and to serve it.

`bundle.json` names every other file with its sha256 and size. Reading checks both before any byte is used, and keeps
the bytes in memory: a file that changes on disk afterwards changes nothing. The same content gives the same bytes
(no dates, sorted keys), so a bundle can be compared by hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edged import magics
from edged.errors import BadDataError
from edged.golden import Golden
from edged.manifest import (
    FORMAT,
    GOLDEN,
    KNOWN_FILES,
    LABELS,
    MANIFEST,
    MODEL,
    MODEL_CPU,
    REPORT,
    REPORT_JSON,
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
    "FORMAT", "GOLDEN", "KNOWN_FILES", "LABELS", "MANIFEST", "MODEL", "MODEL_CPU", "REPORT", "REPORT_JSON", "Bundle",
    "Calibration", "Converter", "FileEntry", "Golden", "ImagePreprocess", "InputRange", "Manifest", "Postprocess",
    "Quality", "Requirements", "Signature", "TensorSpec", "read", "write",
]  # fmt: skip

MAX_MANIFEST = 1 << 20
# What a damaged or hostile file can make the standard library raise (tarfile raises all of them).
_UNREADABLE = (OSError, ValueError, OverflowError, MemoryError, IndexError, struct.error)


@dataclass(frozen=True)
class Bundle:
    """A verified bundle, its files in memory. unlisted: names beside them of which `bundle.json` knows nothing."""

    path: Path
    manifest: Manifest
    files: Mapping[str, bytes]
    unlisted: tuple[str, ...] = ()

    @property
    def model(self) -> bytes:
        """The bytes of `model.tflite`."""
        return self.files[MODEL]

    @property
    def cpu_model(self) -> bytes:
        """The bytes of the model that the CPU runs: the twin of one that is compiled for an accelerator, else it."""
        return self.files.get(MODEL_CPU, self.files[MODEL])

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
        """The golden samples; None when the bundle has none. Raises BadDataError when they cannot be used."""
        if GOLDEN not in self.files:
            return None
        try:
            found = Golden.from_bytes(self.files[GOLDEN])
        except ValueError as exc:
            raise BadDataError(str(self.path), str(exc)) from exc
        if wrong := list(found.problems(self.manifest)):
            raise BadDataError(f"{self.path}/{GOLDEN}", "; ".join(wrong))
        return found


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
        from edged import bundletar  # noqa: PLC0415  # see there

        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(bundletar.dump(files))
        return
    part.mkdir(parents=True)
    for name, data in files.items():
        (part / name).write_bytes(data)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)


def read(path: Path) -> Bundle:
    """Read and verify a bundle (directory or .tar) into memory.

    Raises BadDataError naming the file that is missing, unknown, too long, too short or not as hashed, or the key of
    `bundle.json` that is wrong.
    """
    try:
        if path.is_file():
            from edged import bundletar  # noqa: PLC0415  # see there

            with bundletar.opened(path) as source:
                return _read(path, source)
        return _read(path, _Directory(path))
    except BadDataError:
        raise
    except RecursionError as exc:
        raise BadDataError(str(path), "cannot be read: its headers lead from one to the next without end") from exc
    except _UNREADABLE as exc:
        raise BadDataError(str(path), f"cannot be read: {str(exc) or type(exc).__name__}") from exc


def _read(path: Path, source: _Source) -> Bundle:
    size = source.size(MANIFEST)
    if size is None:
        what = source.special(MANIFEST)
        told = f"{MANIFEST} {what}" if what else f"no {MANIFEST}"
        raise BadDataError(str(path), told, "is this a bundle made by `edged convert`?")
    if size > MAX_MANIFEST:
        raise BadDataError(f"{path}/{MANIFEST}", f"{size} bytes are no {MANIFEST}")
    manifest = parse(source.read(MANIFEST), f"{path}/{MANIFEST}")
    files = {name: _verified(path, name, entry, source) for name, entry in manifest.files.items()}
    if MODEL not in files:
        raise BadDataError(str(path), f"{MANIFEST} lists no {MODEL}")
    return Bundle(path, manifest, files, tuple(sorted(source.names() - set(files) - {MANIFEST})))


class _Source(Protocol):
    """Where a bundle's files come from; sizes are told before anything is read."""

    def size(self, name: str) -> int | None: ...
    def special(self, name: str) -> str: ...
    def read(self, name: str) -> bytes: ...
    def names(self) -> set[str]: ...


class _Directory:
    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            what = magics.special(path) or "no such bundle"
            raise BadDataError(str(path), what, "a bundle is a directory or .tar made by `edged convert`")
        self._path = path

    def size(self, name: str) -> int | None:
        file = self._path / name
        return file.stat().st_size if file.is_file() else None

    def special(self, name: str) -> str:
        return "is a directory" if (self._path / name).is_dir() else magics.special(self._path / name)

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def names(self) -> set[str]:
        return {entry.name for entry in self._path.iterdir()}


def _verified(path: Path, name: str, entry: FileEntry, source: _Source) -> bytes:
    size = source.size(name)
    if size is None:
        told = source.special(name) or "is missing"
        raise BadDataError(str(path), f"{name} {told}", f"{MANIFEST} lists it")
    if size != entry.size:
        raise BadDataError(str(path), f"{name} has {size} bytes, {MANIFEST} says {entry.size}", "copy it again")
    data = source.read(name)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise BadDataError(str(path), f"{name} does not match its sha256", "damaged or changed: copy it again")
    if name == LABELS:
        data.decode()  # a UnicodeDecodeError says where
    return data
