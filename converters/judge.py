"""What a converted file is held against, and the verdict: every figure of every output, the gates, one score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from converters import gates, golden, labels, parity
from converters.gates import OutputParity
from converters.loadtest import load
from converters.options import Options
from converters.parity import Labels
from converters.samples import Array
from edged.bundle import TensorSpec

# Decides between candidates whose gates stand alike: a share of classes moves in steps, an SNR does not.
_TIE = 1e-3


@dataclass(frozen=True)
class Evaluation:
    """Evaluation samples and the SavedModel's answers to them, name → [count, *shape], real values.

    labels: the truth, where it is known. classes: the output that --postprocess names, "" for none.
    real_data: the samples are no random ones.
    """

    inputs: Mapping[str, Array]
    floats: Mapping[str, Array]
    labels: Labels | None = None
    classes: str = ""
    real_data: bool = True

    @classmethod
    def read(cls, folder: Path, class_names: Sequence[str], output: str, source: str, *, real_data: bool) -> Evaluation:
        """Read what the TensorFlow child left in its folder.

        class_names, output: of --labels and --postprocess; source: where the samples came from, for errors.
        Raises BadDataError for labels that fit no output.
        """
        floats, path = load(folder / "floats.npz"), folder / "labels.npz"
        truth = load(path)["labels"] if path.exists() else None
        bound = labels.bind(truth, floats, class_names, output, source)
        return cls(load(folder / "inputs.npz"), floats, bound, output, real_data)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.inputs.values())))


@dataclass(frozen=True)
class Verdict:
    """Every output's figures and gates, and in words what fails; nothing fails where the file may ship."""

    outputs: tuple[OutputParity, ...]
    failures: tuple[str, ...]

    @property
    def score(self) -> float:
        """How good it is: the worst margin of any gate and, with a small weight, the worst SNR of any output."""
        margin = min(gate.margin for output in self.outputs for gate in output.gates)
        snr = min((o.figures["snr_db"] for o in self.outputs if "snr_db" in o.figures), default=0.0)
        return margin + _TIE * snr / parity.MAX_SNR_DB


@dataclass(frozen=True)
class Judge:
    """Holds files of one mode, `options.quantize`, against the evaluation. clamped: constants that float16 cut off."""

    evaluation: Evaluation
    options: Options
    clamped: tuple[str, ...] = ()

    def verdict(self, answers: Mapping[str, Array], specs: Sequence[TensorSpec]) -> Verdict:
        """Judge answers in the model's dtypes, output → [count, *shape]; raises BadDataError for NaN or Inf."""
        floats, real = self.evaluation.floats, golden.to_real(answers, specs)
        made = parity.compare(
            floats,
            real,
            self.options,
            real_data=self.evaluation.real_data,
            labels=self.evaluation.labels,
            classes=self.evaluation.classes,
            clamped=bool(self.clamped),
        )
        by_name = {spec.name: spec for spec in specs}
        outputs = tuple(self._with_saturation(output, by_name[output.output]) for output in made)
        failures = gates.failures(outputs, parity.constant_outputs(floats, real), self.clamped)
        return Verdict(outputs, tuple(failures))

    def _with_saturation(self, made: OutputParity, spec: TensorSpec) -> OutputParity:
        share = parity.saturated(self.evaluation.floats[spec.name], spec)
        figures = {**made.figures, "saturated": float(f"{share:.6g}")} if share else made.figures
        return OutputParity(made.output, figures, made.gates)
