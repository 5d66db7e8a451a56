"""What `bundle.json` says: the dataclasses, read strictly and written so that equal content gives equal bytes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from edged import limits, schema
from edged.checks import Check
from edged.errors import BadDataError
from edged.shown import clipped

FORMAT = 1
MAX_ELEMENTS = 1 << 31  # of one tensor
MAX_VERSION = 1 << 53  # whole numbers up to here are the same in every reader of JSON
_INT32 = (-(1 << 31), (1 << 31) - 1)
MANIFEST = "bundle.json"
MODEL = "model.tflite"
MODEL_CPU = "model.cpu.tflite"
GOLDEN = "golden.npz"
LABELS = "labels.txt"
REPORT = "report.html"
REPORT_JSON = "report.json"

# What a bundle may hold; a reader refuses any other name, so a path can never leave the bundle.
KNOWN_FILES = frozenset({MODEL, MODEL_CPU, GOLDEN, LABELS, REPORT, REPORT_JSON})


_MAX_NAME = 1000
_NAME = Check(
    lambda text: None if text.isprintable() and len(text) <= _MAX_NAME
    else f"must be at most {_MAX_NAME} characters, none of them a control character"
)  # fmt: skip


@dataclass(frozen=True)
class FileEntry:
    """A file of the bundle: lower-case hex sha256 and size in bytes."""

    sha256: str
    size: Annotated[int, schema.at_least(0), schema.at_most(limits.MAX_FILE)]


@dataclass(frozen=True)
class TensorSpec:
    """One input or output. `name` is the signature's name, `dtype` and `shape` are those inside the model.

    scale, zero_point: real = scale * (quantized - zero_point); scale 0 means not quantized.
    io: what the client sends or gets: "float" (float32, converted by the daemon) or "quantized" (`dtype` itself).
    """

    name: Annotated[str, _NAME]
    dtype: Literal[
        "float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"
    ]
    shape: tuple[Annotated[int, schema.at_least(1), schema.at_most(MAX_ELEMENTS)], ...]
    scale: float = 0.0
    zero_point: Annotated[int, schema.at_least(_INT32[0]), schema.at_most(_INT32[1])] = 0
    io: Literal["float", "quantized"] = "float"

    def problems(self) -> Iterator[schema.Problem]:
        """Yield what does not go together."""
        if self.elements > MAX_ELEMENTS:
            yield schema.Problem("shape", f"{self.elements} elements are more than {MAX_ELEMENTS}")

    @property
    def wire_dtype(self) -> np.dtype[Any]:
        """The dtype of the client's array: float32 where the daemon converts, else the model's own."""
        return np.dtype(np.float32) if self.converts else np.dtype(self.dtype)

    @property
    def converts(self) -> bool:
        """Whether the daemon quantizes or dequantizes between the client's array and the tensor."""
        return self.scale != 0.0 and self.io == "float"

    @property
    def elements(self) -> int:
        """Number of elements of one request."""
        return math.prod(self.shape)

    @property
    def wire_bytes(self) -> int:
        """Bytes of one raw payload of this tensor."""
        return self.elements * self.wire_dtype.itemsize


@dataclass(frozen=True)
class ImagePreprocess:
    """How a JPEG or PNG becomes the input: resized, `(pixel * scale - mean) / std` per channel, then laid out.

    width, height: pixels, taken from the input's shape when the bundle is made. resize: stretch to the size, crop the
    centre after an aspect-true resize, or letterbox (pad with `pad`). mean, std: one value, or one per channel.
    A quantized uint8 input with scale 1, mean 0 and std 1 takes the pixels as they are.
    """

    input: str
    width: Annotated[int, schema.at_least(1)]
    height: Annotated[int, schema.at_least(1)]
    channels: Literal["RGB", "BGR", "GRAY"] = "RGB"
    layout: Literal["NHWC", "NCHW"] = "NHWC"
    resize: Literal["stretch", "crop", "letterbox"] = "stretch"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    pad: Annotated[int, schema.at_least(0), schema.at_most(255)] = 0

    def problems(self) -> Iterator[schema.Problem]:
        """Yield what does not go together."""
        channels = 1 if self.channels == "GRAY" else 3
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                yield schema.Problem(name, f"expected 1 or {channels} values, got {len(values)}")
        if 0.0 in self.std:
            yield schema.Problem("std", "must not be 0")


@dataclass(frozen=True)
class Postprocess:
    """What happens to an output before it is encoded. Applies to the output named (the only one when empty).

    softmax: applied to the last axis in every codec. top_k, threshold: which classes (with labels, where the bundle
    has them) JSON and CBOR answers list beside the outputs; top_k 0 lists none.
    """

    output: str = ""
    softmax: bool = False
    top_k: Annotated[int, schema.at_least(0)] = 0
    threshold: float = 0.0


@dataclass(frozen=True)
class Quality:
    """How far one output of the converted model is from the float SavedModel, on held-out samples."""

    output: str
    metric: str
    value: float
    threshold: float
    samples: Annotated[int, schema.at_least(0)]
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class InputRange:
    """What calibration saw of one input."""

    input: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Calibration:
    """The calibration data: where from, how many samples, the range of each input."""

    source: str = ""
    samples: Annotated[int, schema.at_least(0)] = 0
    ranges: tuple[InputRange, ...] = ()


@dataclass(frozen=True)
class Requirements:
    """What a runtime needs: op name → highest version used, and the runtimes the model was really loaded on."""

    ops: Mapping[str, int] = field(default_factory=dict)
    loaded_on: tuple[str, ...] = ()
    delegates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Converter:
    """How the model was made: package versions and the flags given."""

    versions: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """`bundle.json`. An unknown key outside `ext` is an error."""

    format: Literal[1]
    name: Annotated[str, _NAME]
    version: Annotated[int, schema.at_least(1), schema.at_most(MAX_VERSION)]
    files: Mapping[str, FileEntry]
    signature: Annotated[str, _NAME]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    quantize: str = "none"
    preprocess: ImagePreprocess | None = None
    postprocess: Postprocess = Postprocess()
    stateful: bool = False
    requirements: Requirements = Requirements()
    quality: tuple[Quality, ...] = ()
    calibration: Calibration = Calibration()
    converter: Converter = Converter()
    ext: Mapping[str, Any] = field(default_factory=dict)

    def problems(self) -> Iterator[schema.Problem]:
        """Yield what does not go together."""
        for key, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            names = [spec.name for spec in specs]
            if not names:
                yield schema.Problem(key, "there is none")
            if len(set(names)) != len(names):
                yield schema.Problem(key, "a name is given twice")
        outputs = [spec.name for spec in self.outputs]
        if self.postprocess.output and self.postprocess.output not in outputs:
            yield schema.Problem("postprocess.output", f"no such output (there are {', '.join(outputs)})")
        if self.preprocess is not None and self.preprocess.input not in [spec.name for spec in self.inputs]:
            yield schema.Problem("preprocess.input", f"no input is called {self.preprocess.input!r}")


@dataclass(frozen=True)
class Signature:
    """What codecs need to know of a model. `name` is the signature's key in the SavedModel."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    preprocess: ImagePreprocess | None = None
    postprocess: Postprocess = Postprocess()
    labels: tuple[str, ...] = ()
    name: str = ""


def dump(manifest: Manifest) -> bytes:
    """Serialise the manifest: sorted keys, two-space indent, no dates."""
    return (json.dumps(dataclasses.asdict(manifest), indent=2, sort_keys=True) + "\n").encode()


def parse(data: bytes, where: str) -> Manifest:
    """Parse `bundle.json`; raises BadDataError with every problem."""
    try:
        value = json.loads(data, object_pairs_hook=schema.unique_pairs)
    except (ValueError, RecursionError) as exc:  # a decoding error and a key given twice are both ValueErrors
        raise BadDataError(where, f"not valid JSON: {exc}") from exc
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        raise BadDataError(where, f"format {found!r} is not known", f"this edged reads format {FORMAT}")
    manifest, problems = schema.build(Manifest, value)
    if manifest is None or problems:
        raise BadDataError(where, "; ".join(f"{p.path}: {p.message}" for p in problems), f"bundle format {FORMAT}")
    unknown = sorted(set(manifest.files) - KNOWN_FILES)
    if unknown:
        raise BadDataError(
            where, f"files: unknown name {clipped(unknown[0])!r}", f"known: {', '.join(sorted(KNOWN_FILES))}"
        )
    return manifest
