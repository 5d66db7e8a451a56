"""The stages of one conversion, in order. This process imports no TensorFlow and loads no model: its children do.

check the arguments → TensorFlow child (conversions) → every runtime in its own child (attempt) → choose → package.
Nothing is written at the output before the last gate has passed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from converters import choose, compat, coverage, front, layers, package, pages, place, workplace
from converters.attempt import Bench, Made, try_out
from converters.child import DiedError, OnStage
from converters.conversions import Conversions
from converters.found import Converted
from converters.judge import Evaluation
from converters.loadtest import load
from converters.options import AUTO, Options
from converters.report import Attempt, LayerError, Report
from converters.texts import Texts
from edged.bundle import Manifest
from edged.errors import BadDataError, EdgedError, InternalError, UnavailableError, UsageError


@dataclass(frozen=True)
class Result:
    """What a conversion made, for a person or a program to read. unkept: why --report could not be kept; mostly ""."""

    path: Path
    manifest: Manifest
    report: Report
    unkept: str = ""


class _Reported(EdgedError):  # noqa: N818  # one half of the errors below
    """Has a `report`, which says all there is to say."""

    def __init__(self, where: str, what: str, hint: str, report: Report) -> None:
        super().__init__(where, what, hint)
        self.report = report


class RefusedError(_Reported, BadDataError):
    """No file may ship."""


class CrashedError(_Reported, InternalError):
    """Native code did not survive the one mode that was asked for."""


def convert(options: Options, on_stage: OnStage, on_log: Callable[[str], object]) -> Result:
    """Convert and write the bundle.

    on_stage: told of every stage begun. on_log: given what the TensorFlow child printed, when options.verbose.
    Raises UsageError, BadDataError (RefusedError where a gate failed), UnavailableError or InternalError; the output is
    then as it was before.
    """
    texts = Texts.read(options)
    _check(options)
    with workplace.made() as folder:
        run = _Run(options, texts, Conversions(options, texts, folder, on_stage, on_log), on_stage)
        return run.finish()


def _check(options: Options) -> None:
    """Refuse in a moment what would otherwise fail after minutes."""
    front.find(options.model)
    place.check_output(options.output, force=options.force)
    pages.check(options)
    compat.targets(options.targets)
    if options.quantize != AUTO:
        _check_mode(options)
    elif not choose.modes(options):
        raise UsageError("--io", f"quantized needs integer inputs, and so --quantize {AUTO} needs --calibration")


def _check_mode(options: Options) -> None:
    if options.mode.calibrated and not options.calibration:
        hint = "--calibration with 100 or more real samples: .npz, .npy, .csv, a directory of images or module:function"
        raise UsageError("--quantize", f"{options.quantize} needs calibration data", hint)
    if options.io == "quantized" and not options.mode.integer:
        raise UsageError("--io", f"quantized needs integer inputs, --quantize {options.quantize} keeps float32")


class _Run:
    """One conversion on its way: what was converted, what was tried."""

    def __init__(self, options: Options, texts: Texts, conversions: Conversions, on_stage: OnStage) -> None:
        self._options, self._texts, self._on_stage = options, texts, on_stage
        self._conversions = conversions
        self._attempts: list[Attempt] = []
        self._made: dict[str, Made] = {}
        self._bench: Bench | None = None

    def finish(self) -> Result:
        """Try what was asked for, and what else helps; write the bundle or raise."""
        self._try(choose.modes(self._options))
        if self._options.quantize == AUTO and choose.wants_mixed(self._options, self._attempts):
            self._try(choose.SEARCHED)
        chosen = choose.choose(self._attempts)
        if chosen is None:
            self._explain()
        report = self._report(chosen.quantize if chosen else "")
        if chosen is None:
            raise self._refusal(report)
        return self._write(report, self._made[chosen.quantize])

    def _try(self, modes: Sequence[str]) -> None:
        self._conversions.run(modes)
        self._bench = self._bench or self._made_bench()
        for mode in modes:
            outcome = self._conversions.outcomes[mode]
            if isinstance(outcome, Converted):
                attempt, made = try_out(self._bench, outcome, self._conversions.model(mode), self._on_stage)
                if made is not None:
                    self._made[mode] = made
            else:
                attempt = _failed(mode, outcome)
            self._attempts.append(attempt)

    def _made_bench(self) -> Bench:
        texts, found = self._texts, self._conversions.found
        evaluation = Evaluation.read(
            self._conversions.folder,
            texts.labels,
            texts.postprocess.output,
            self._options.evaluation,
            real_data=found.real_data,
        )
        texts.check_labels({name: a.shape[1:] for name, a in evaluation.floats.items()}, self._options)
        return Bench(self._options, texts, evaluation, compat.targets(self._options.targets))

    def _explain(self) -> None:
        """Find out what would work, and which layers lose the accuracy."""
        asked = self._attempts[0]
        if asked.state == "died":
            self._try([mode for mode in choose.FALLBACKS if mode not in self._conversions.outcomes])
        elif self._options.quantize != AUTO and asked.targets and asked.quantize != "none":
            self._conversions.run(("none",))
            if isinstance(self._conversions.outcomes["none"], Converted):
                self._attempts[0] = dataclasses.replace(asked, layers=self._layers(asked.quantize))

    def _layers(self, mode: str) -> tuple[LayerError, ...]:
        return layers.compare(
            self._conversions.model("none"),
            self._conversions.model(mode),
            load(self._conversions.folder / "inputs.npz"),
            self._conversions.folder / "layers",
            self._on_stage,
            self._options.limits,
        )

    def _report(self, chosen: str) -> Report:
        found = self._conversions.found
        report = Report(
            name=self._options.name,
            version=self._options.version,
            quantize=self._options.quantize,
            chosen=chosen,
            source=found.source,
            attempts=tuple(self._attempts),
            calibration=found.calibration,
            outside=found.outside,
            evaluation=found.evaluation,
            samples=self._bench.evaluation.samples if self._bench else 0,
            advice=() if chosen else choose.advice(self._options, self._attempts),
            warnings=found.notes,
            versions=found.versions,
        )
        return self._with_coverage(report)

    def _with_coverage(self, report: Report) -> Report:
        shown = report.shown
        model = self._conversions.model(shown.quantize)
        if not model.exists():
            return report
        shown = dataclasses.replace(shown, coverage=coverage.of(model, self._on_stage, self._options.limits))
        attempts = tuple(shown if attempt.quantize == shown.quantize else attempt for attempt in report.attempts)
        return dataclasses.replace(report, attempts=attempts)

    def _refusal(self, report: Report) -> RefusedError | CrashedError:
        try:
            kept = f"report: {pages.keep_refused(self._options, report)}"
        except UnavailableError as exc:  # the reason matters more
            kept = f"no report, {exc}"
        asked = report.attempts[0]
        crashed = asked.state == "died" and self._options.quantize != AUTO
        where = f"TensorFlow on {self._options.model}" if crashed else f"--quantize {self._options.quantize}"
        if self._options.quantize == AUTO:
            what = "; ".join(f"{a.quantize}: {', '.join(a.reasons)}" for a in report.attempts)
        else:
            what = "; ".join(asked.reasons)
        hint = "; ".join([*report.advice, kept])
        return (CrashedError if crashed else RefusedError)(where, what, hint, report)

    def _write(self, report: Report, made: Made) -> Result:
        self._on_stage("writing the bundle")
        manifest = package.manifest(made, self._conversions.found, report)
        files = made.texts.files(made.model.read_bytes(), made.known) | pages.files(report)
        place.write(self._options.output, manifest, files, force=self._options.force)
        unkept = ""
        try:
            pages.keep_passed(self._options, report)
        except UnavailableError as exc:  # the bundle is there, and sound
            unkept = str(exc)
        return Result(self._options.output, manifest, report, unkept)


def _failed(mode: str, outcome: EdgedError | DiedError) -> Attempt:
    if isinstance(outcome, DiedError):
        return Attempt(mode, "died", (f"the converter {outcome.reason}",))
    return Attempt(mode, "refused", (outcome.what + (f" ({outcome.hint})" if outcome.hint else ""),))
