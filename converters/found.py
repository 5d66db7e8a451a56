"""What the TensorFlow child found out: a dataclass there, JSON on the way, the same dataclass here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from converters.report import MixedSearch, Source
from converters.truth import Facts
from edged.bundle import Calibration, ImagePreprocess


@dataclass(frozen=True)
class Found:
    """The SavedModel and the data: what holds for every mode. versions: of the packages that made the model.

    evaluation: where the evaluation samples came from; real_data: they are no random ones.
    outside: input → share of evaluation samples with a value outside the calibrated range.
    notes: what a person should be told.
    """

    source: Source
    versions: Mapping[str, str]
    image: ImagePreprocess | None
    calibration: Calibration
    evaluation: str
    real_data: bool = True
    outside: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Converted:
    """One mode's file. flags: converter switches that make it load on an older runtime, in words."""

    quantize: str
    facts: Facts
    flags: tuple[str, ...] = ()
    mixed: MixedSearch | None = None
    notes: tuple[str, ...] = ()
