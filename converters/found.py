"""What the TensorFlow child found out: a dataclass there, JSON on the way, the same dataclass here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from converters.truth import Facts
from edged.bundle import Calibration, ImagePreprocess


@dataclass(frozen=True)
class Found:
    """The signature and tag set chosen, package versions, and what the converted file holds.

    evaluation: where the evaluation samples came from. notes: what a person should be told.
    """

    signature: str
    tags: tuple[str, ...]
    versions: Mapping[str, str]
    facts: Facts
    image: ImagePreprocess | None
    calibration: Calibration
    evaluation: str
    notes: tuple[str, ...]
