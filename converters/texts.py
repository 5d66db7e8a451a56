"""The small files a person gives beside the model: labels, --preprocess and --postprocess, checked early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from converters import plain
from converters.options import Options
from edged import bundle, topics
from edged.bundle import Golden, ImagePreprocess, Postprocess, TensorSpec
from edged.errors import BadDataError, UsageError

# How many classes an answer lists where --labels are given and nothing else is said.
TOP = 5


@dataclass(frozen=True)
class Texts:
    """The small files a person gives. image: the plain mapping of --preprocess, completed once the model is known."""

    labels: tuple[str, ...]
    image: Mapping[str, Any] | None
    postprocess: Postprocess

    @classmethod
    def read(cls, options: Options) -> Texts:
        """Read them; raises BadDataError, UsageError or ConfigError with every problem."""
        if not topics.valid_level(options.name):
            raise UsageError("--name", f"{options.name!r} cannot be part of a topic", "no /, + or #, 1 to 255 bytes")
        labels = _labels(Path(options.labels)) if options.labels else ()
        image = plain.mapping(options.preprocess) if options.preprocess else None
        if image is not None:
            # What the model will fill in stands in for a moment, so that every other mistake shows now.
            plain.build(ImagePreprocess, {"input": "", "width": 1, "height": 1, **image}, options.preprocess)
        post = (
            plain.build(Postprocess, plain.mapping(options.postprocess), options.postprocess)
            if options.postprocess
            else None
        )
        return cls(labels, image, post or Postprocess())

    def files(self, model: bytes, golden: Golden) -> dict[str, bytes]:
        """Return the bundle's files."""
        files = {bundle.MODEL: model, bundle.GOLDEN: golden.to_bytes()}
        if self.labels:
            files[bundle.LABELS] = ("\n".join(self.labels) + "\n").encode()
        return files

    def check_labels(self, outputs: Mapping[str, tuple[int, ...]], options: Options) -> None:
        """Raise BadDataError unless an output (the one --postprocess names) has as many classes as there are labels.

        outputs: name → shape.
        """
        name = self.postprocess.output
        named = {output: shape for output, shape in outputs.items() if name in ("", output)}
        if not named:
            raise BadDataError(options.postprocess, f"output: no output {name!r}", f"outputs: {', '.join(outputs)}")
        if self.labels and not any(shape[-1:] == (len(self.labels),) for shape in named.values()):
            listed = ", ".join(f"{output} {list(shape)}" for output, shape in named.items())
            raise BadDataError(options.labels, f"{len(self.labels)} labels fit no output: {listed}")

    def with_classes(self, outputs: Sequence[TensorSpec], options: Options) -> Texts:
        """Without --postprocess, let answers list the best classes of the one output that holds a score for each label.

        Such an output is [batch, classes] of real numbers. Where none or several are, nothing changes.
        """
        scores = [spec for spec in outputs if _scores(spec, len(self.labels))]
        if options.postprocess or not self.labels or len(scores) != 1:
            return self
        best = Postprocess(output=scores[0].name, top_k=min(TOP, len(self.labels)))
        return replace(self, postprocess=best)


def _scores(spec: TensorSpec, classes: int) -> bool:
    real = spec.scale != 0.0 or spec.dtype.startswith("float")
    return real and len(spec.shape) == 2 and spec.shape[-1] == classes  # noqa: PLR2004  # batch, classes


def _labels(path: Path) -> tuple[str, ...]:
    lines = plain.text(str(path)).splitlines()
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if not lines or empty is not None:
        raise BadDataError(
            str(path), "holds no label" if not lines else f"line {empty} is empty", "one class name a line"
        )
    return tuple(line.strip() for line in lines)
