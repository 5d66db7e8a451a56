"""The judge of a search: what a candidate file answers on the evaluation data, against the gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from converters import gates, golden, parity
from converters.gates import OutputParity
from converters.options import Options
from converters.parity import Labels
from converters.samples import Array
from edged.bundle import TensorSpec

# Decides between candidates whose gates stand alike: a share of classes moves in steps, an SNR does not.
_TIE = 1e-3
_MAX_SNR = 300.0


@dataclass(frozen=True)
class Judge:
    """floats: the SavedModel's answers, output → [count, *shape]. labels: the truth, where it is known."""

    floats: Mapping[str, Array]
    labels: Labels | None
    options: Options
    real_data: bool = True

    def compare(self, answers: Mapping[str, Array], specs: Sequence[TensorSpec]) -> list[OutputParity]:
        """Measure answers in the model's dtypes, output → [count, *shape]; raises BadDataError for NaN or Inf."""
        real = golden.to_real(answers, specs)
        made = parity.compare(self.floats, real, self.options, real_data=self.real_data, labels=self.labels)
        return [self._with_saturation(p, spec) for p, spec in zip(made, sorted(specs, key=_name), strict=True)]

    def _with_saturation(self, made: OutputParity, spec: TensorSpec) -> OutputParity:
        share = parity.saturated(self.floats[spec.name], spec)
        figures = {**made.figures, "saturated": float(f"{share:.6g}")} if share else made.figures
        return OutputParity(made.output, figures, made.gates)

    def failures(self, answers: Mapping[str, Array], specs: Sequence[TensorSpec]) -> list[str]:
        """Return what fails, in words: the gates, and outputs that never change."""
        stuck = parity.constant_outputs(self.floats, golden.to_real(answers, specs))
        return gates.failures(self.compare(answers, specs), stuck)

    def score(self, answers: Mapping[str, Array], specs: Sequence[TensorSpec]) -> tuple[float, bool]:
        """Return (score, whether every gate passes); a higher score is better.

        The worst margin of any gate, and with a small weight the worst SNR of any output.
        """
        made = self.compare(answers, specs)
        margin = min(gate.margin for p in made for gate in p.gates)
        snr = min((p.figures["snr_db"] for p in made if "snr_db" in p.figures), default=0.0)
        return margin + _TIE * snr / _MAX_SNR, not self.failures(answers, specs)


def _name(spec: TensorSpec) -> str:
    return spec.name
