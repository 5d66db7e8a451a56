"""The choice for a bundle, with made-up measurements: what is asked again, what is kept, what is told."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import tinymodel
from support.brokers import eventually

from delegates import registry
from delegates.base import BOTH, DEFAULT, LITERT, TFLITE_RUNTIME, Opening, Probe
from delegates.select import Measured
from edged import bundle, probing
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.config import SelectionConfig
from edged.engines.candidate import Candidate
from edged.engines.measure import Job
from edged.engines.tflite_runtime import Runtime
from edged.selection import NothingAgreesError, Selector, Wish, finding, locks, served, wish
from edged.selection.children import Measurer
from edged.selection.suspects import FOLDER

BOTH_RUNTIMES = (LITERT, TFLITE_RUNTIME)
GOOD = {"verdict": "agrees", "p99_us": 9.0, "samples": 1000}


class Chip:
    """An accelerator that is never opened. Options: on, the runtimes that can."""

    name, isolated, api, caches = "chip", True, "interpreter", False

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.runtimes = frozenset((options or {}).get("on", BOTH))

    def probe(self) -> Probe:
        raise AssertionError("probed in this process")

    def open(self, module: object, how: Opening = DEFAULT) -> Mapping[str, Any]:
        raise AssertionError("opened in this process")


class Bench:
    """Answers for the children: a row by label, 10 µs where nothing is said; counts what is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
        self.jobs: list[str] = []
        self.probed: list[str] = []
        self.rows: dict[str, Mapping[str, Any]] = {}
        self.probe = Probe(available=True, library=str(library))
        self.here: tuple[str, ...] = ()
        self.before: Callable[[Job], None] = lambda _: None
        monkeypatch.setattr(Measurer, "measure", lambda _self, job, row: self._measured(job, row))
        monkeypatch.setattr(probing, "probe", lambda name, _options, **_: self._probed(name))
        monkeypatch.setattr(probing, "everything", lambda: (("cpu", {}), ("chip", {})))
        monkeypatch.setattr(probing, "probe_each", lambda wanted, **_: [self._probed(name) for name, _ in wanted])
        monkeypatch.setattr(Runtime, "version", property(lambda _: "1.0"))
        create = registry.create
        monkeypatch.setattr(
            registry, "create", lambda name, given: Chip(given) if name == "chip" else create(name, given)
        )

    def _measured(self, job: Job, row: Measured) -> Measured:
        self.before(job)
        self.jobs.append(row.label)
        return replace(row, **{**GOOD, "p50_us": 10.0, **self.rows.get(row.label, {})})

    def _probed(self, name: str) -> Probe:
        self.probed.append(name)
        return self.probe


@pytest.fixture
def dense(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libchip.so"
    path.write_bytes(b"chip")
    return path


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, library: Path) -> Bench:
    return Bench(monkeypatch, library)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


CHIP = (("chip", {}),)
CPU = (("cpu", {}),)
CHIP_AND_CPU = (*CHIP, *CPU)


def test_the_fastest_of_both_runtimes_is_chosen_and_kept(bench: Bench, dense: Bundle, state: Path) -> None:
    """The second process measures nothing, probes nothing, and says the same."""
    bench.rows["cpu on tflite-runtime"] = {"p50_us": 5.0}
    first = Selector(state).choose(dense, Wish(CPU, BOTH_RUNTIMES))
    assert first.chosen.runtime == TFLITE_RUNTIME
    assert bench.jobs == ["cpu on ai-edge-litert", "cpu on tflite-runtime"]
    second = Selector(state).choose(dense, Wish(CPU, BOTH_RUNTIMES))
    assert len(bench.jobs) == 2
    assert (second.chosen, second.p99_us) == (first.chosen, first.p99_us)
    assert [replace(row, kept=False) for row in second.rows] == list(first.rows)
    assert all(row.kept for row in second.rows)


def test_one_runtime_alone_will_do(bench: Bench, dense: Bundle, state: Path) -> None:
    """Where only tflite-runtime is there, nothing of the other is asked for."""
    assert Selector(state).choose(dense, Wish(CPU, (TFLITE_RUNTIME,))).chosen.runtime == TFLITE_RUNTIME
    assert bench.jobs == ["cpu on tflite-runtime"]


def test_the_accelerator_is_measured_after_the_cpu(bench: Bench, dense: Bundle, state: Path) -> None:
    """Something serves in any case; the rows stand in the order asked for."""
    found = Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    assert bench.jobs == ["cpu on ai-edge-litert", "chip on ai-edge-litert"]
    assert [row.delegate for row in found.rows] == ["chip", "cpu"]


def test_a_known_accelerator_is_not_even_probed(bench: Bench, dense: Bundle, state: Path) -> None:
    """Its library's path is remembered, and only looked at."""
    for _ in range(2):
        Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    assert bench.probed == ["chip"]


def test_touching_the_library_measures_it_again_and_it_alone(
    bench: Bench, dense: Bundle, state: Path, library: Path
) -> None:
    """The CPU's row is still good."""
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    library.write_bytes(b"another chip")
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    assert bench.jobs[2:] == ["chip on ai-edge-litert"]


def test_the_bare_names_of_its_library_are_remembered(bench: Bench, dense: Bundle, state: Path, library: Path) -> None:
    """Of one that the system's search path leads to; a path is looked at as it was given."""
    wanted = ({"library": "libedged_nowhere.so"}, {"library": str(library)})
    for given in wanted:
        Selector(state).choose(dense, Wish((("external", given),), (LITERT,)))
    told = [Selector(state).keeping.store.installed(f"external {json.dumps(given)}") for given in wanted]
    assert [one and one.names for one in told] == [("libedged_nowhere.so",), ()]


def test_another_model_is_measured(bench: Bench, dense: Bundle, state: Path, tmp_path: Path) -> None:
    """The same name, other bytes."""
    selector = Selector(state)
    selector.choose(dense, Wish(CPU, (LITERT,)))
    selector.choose(bundle.read(tinymodel.write_int8_bundle(tmp_path / "b", name="dense")), Wish(CPU, (LITERT,)))
    assert len(bench.jobs) == 2


def test_remeasure_asks_for_everything_again(bench: Bench, dense: Bundle, state: Path) -> None:
    """Known or not; the new row takes the old one's place."""
    Selector(state).choose(dense, Wish(CPU, (LITERT,)))
    bench.rows["cpu on ai-edge-litert"] = {"p50_us": 7.0}
    Selector(state).choose(dense, Wish(CPU, (LITERT,)), fresh=True)
    assert Selector(state).choose(dense, Wish(CPU, (LITERT,))).rows[0].p50_us == 7.0
    assert len(bench.jobs) == 2


@pytest.mark.parametrize(
    ("row", "asked_again"),
    [
        ({"verdict": "refused", "reason": "off by 3"}, False),
        ({"verdict": "failed", "reason": "no device"}, True),
        ({"verdict": "failed", "reason": "was killed by SIGSEGV", "crashed": True}, False),
    ],
)
def test_what_another_start_would_find_the_same_is_kept(
    row: dict[str, Any], asked_again: bool, bench: Bench, dense: Bundle, state: Path
) -> None:
    """Wrong numbers and crashes are; a missing device or a time-out may have passed."""
    bench.rows["chip on ai-edge-litert"] = row
    for _ in range(2):
        Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    assert bench.jobs[2:] == (["chip on ai-edge-litert"] if asked_again else [])


def test_a_crash_makes_a_suspect_until_its_library_changes(
    bench: Bench, dense: Bundle, state: Path, library: Path
) -> None:
    """Failed when it happens, suspect at the next start, and measured again when there is another library."""
    bench.rows["chip on ai-edge-litert"] = {"verdict": "failed", "reason": "was killed by SIGSEGV", "crashed": True}
    verdicts = [Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,))).rows[0] for _ in range(2)]
    assert [row.verdict for row in verdicts] == ["failed", "suspect"]
    assert verdicts[1].reason.startswith("was killed by SIGSEGV; tried again when its library")
    bench.rows.clear()
    library.write_bytes(b"mended")
    assert Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,))).rows[0].verdict == "slower"


def test_a_measurement_that_fails_ends_what_was_known(bench: Bench, dense: Bundle, state: Path) -> None:
    """The older row says that it agrees: the next start measures again, and does not open it on that word."""
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    bench.rows["chip on ai-edge-litert"] = {"verdict": "failed", "reason": "device lost"}
    for fresh in (True, False):
        found = Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)), fresh=fresh)
        assert found.rows[0].verdict == "failed"
    assert bench.jobs.count("chip on ai-edge-litert") == 3


def test_a_measurement_that_was_stopped_ends_nothing(bench: Bench, dense: Bundle, state: Path) -> None:
    """Ctrl-C says nothing of the candidate."""
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    bench.rows["chip on ai-edge-litert"] = {"verdict": "failed", "reason": "the process that loaded it was stopped"}
    selector = Selector(state)
    bench.before = lambda job: selector.stop() if job.candidate.delegate == "chip" else None
    selector.choose(dense, Wish(CHIP_AND_CPU, (LITERT,)), fresh=True)
    bench.jobs.clear()
    assert Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,))).rows[0].kept
    assert bench.jobs == []


@pytest.mark.parametrize(
    ("name", "value"), [("label", "\x1b[31mevil"), ("options", "not JSON"), ("threads", -1), ("delegate", "gpu")]
)
def test_a_row_is_of_the_candidate_whatever_the_file_says(
    name: str, value: object, bench: Bench, dense: Bundle, state: Path
) -> None:
    """Somebody edited it: the key tells which candidate it is of."""
    wanted = Wish(CPU, (LITERT,))
    (before,) = Selector(state).choose(dense, wanted).rows
    file = Selector(state).file
    told = json.loads(file.read_text())
    for kept in told["rows"].values():
        kept["row"][name] = value
    file.write_text(json.dumps(told))
    assert Selector(state).choose(dense, wanted).rows == (replace(before, kept=True),)


def test_remeasure_tries_a_suspect_again(bench: Bench, dense: Bundle, state: Path) -> None:
    """And what it finds holds from then on."""
    bench.rows["chip on ai-edge-litert"] = {"verdict": "failed", "crashed": True}
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    bench.rows["chip on ai-edge-litert"] = {"p50_us": 1.0}
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)), fresh=True)
    assert Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,))).chosen.delegate == "chip"


def test_a_crash_of_the_cpu_is_not_held_against_it(bench: Bench, dense: Bundle, state: Path) -> None:
    """Nothing else could serve, and trying again costs a child."""
    bench.rows["cpu on ai-edge-litert"] = {"verdict": "failed", "crashed": True}
    for _ in range(2):
        with pytest.raises(NothingAgreesError):
            Selector(state).choose(dense, Wish(CPU, (LITERT,)))
    assert len(bench.jobs) == 2


def test_an_accelerator_is_marked_while_it_is_measured(bench: Bench, dense: Bundle, state: Path) -> None:
    """The mark is there while the child runs, not for the CPU, and not afterwards."""
    marks: dict[str, int] = {}
    bench.before = lambda job: marks.update({job.candidate.delegate: _marks(state)})
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    assert marks == {"cpu": 0, "chip": 1}
    assert _marks(state) == 0


def _marks(state: Path) -> int:
    return len(list((state / FOLDER).iterdir())) if (state / FOLDER).exists() else 0


def test_a_mark_that_was_left_makes_a_suspect(bench: Bench, dense: Bundle, state: Path) -> None:
    """The machine went down while it was opened: later starts do not try it, and say why."""
    left: dict[Path, str] = {}

    def remember(_: Job) -> None:
        left.update({path: path.read_text() for path in (state / FOLDER).iterdir()})

    bench.before = lambda job: remember(job) if job.candidate.delegate == "chip" else None
    bench.rows["chip on ai-edge-litert"] = {"verdict": "failed"}  # not kept: as if the power had gone
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,)))
    ((path, mark),) = left.items()
    path.write_text(mark.replace('"boot": "', '"boot": "earlier-'))
    bench.jobs.clear()
    rows = [Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,))).rows[0] for _ in range(2)]
    assert [row.verdict for row in rows] == ["suspect", "suspect"]
    assert rows[0].reason.startswith("an earlier start ended while it was being opened")
    assert (bench.jobs, _marks(state)) == ([], 0)


def test_what_was_asked_for_and_cannot_serve_is_missed(bench: Bench, dense: Bundle, state: Path) -> None:
    """Unavailable: told with the step that mends it, and tried again in the background; the CPU serves."""
    bench.probe = Probe(available=False, reason="no chip is connected", fix="connect it")
    found = Selector(state).choose(dense, Wish(CHIP, (LITERT, TFLITE_RUNTIME)))
    assert (found.chosen.delegate, found.stand_in) == ("cpu", found.chosen)
    assert found.missed == "chip: unavailable: no chip is connected (connect it)"
    (miss,) = found.misses
    assert miss.retry is not None
    assert miss.retry.delegate == "chip"
    assert [row.label for row in found.rows if row.delegate == "chip"] == ["chip on ai-edge-litert"]


@pytest.mark.parametrize(
    ("row", "retried"),
    [
        ({"verdict": "refused", "reason": "off by 3"}, False),
        ({"verdict": "failed", "reason": "no device"}, True),
        ({"verdict": "failed", "reason": "SIGSEGV", "crashed": True}, False),
    ],
)
def test_only_what_may_pass_is_tried_in_the_background(
    row: dict[str, Any], retried: bool, bench: Bench, dense: Bundle, state: Path
) -> None:
    """Wrong numbers stay wrong, and what crashed is left alone."""
    bench.rows["chip on ai-edge-litert"] = row
    found = Selector(state).choose(dense, Wish(CHIP, (LITERT,)))
    assert found.missed == f"chip: {row['verdict']}: {row['reason']}"
    assert [miss.retry is not None for miss in found.misses] == [retried]


def test_slower_is_not_missed(bench: Bench, dense: Bundle, state: Path) -> None:
    """It could serve, and the CPU is quicker: all is well. Nor when one of two runtimes can."""
    bench.rows = {"cpu on ai-edge-litert": {"p50_us": 1.0}, "chip on ai-edge-litert": {"verdict": "refused"}}
    found = Selector(state).choose(dense, Wish(CHIP_AND_CPU, BOTH_RUNTIMES))
    assert found.chosen.delegate == "cpu"
    assert (found.missed, found.misses) == ("", ())


def test_two_with_the_same_name_are_told_apart(bench: Bench, dense: Bundle, state: Path) -> None:
    """Two option sets of one delegate: the one that fails is missed although the other serves."""
    wanted = (("chip", {}), ("chip", {"on": [TFLITE_RUNTIME]}))
    bench.rows["chip on tflite-runtime"] = {"verdict": "refused", "reason": "off by 3"}
    assert Selector(state).choose(dense, Wish(wanted, BOTH_RUNTIMES)).missed == "chip: refused: off by 3"


def test_a_delegate_that_no_runtime_here_can_bring_in_is_unavailable(bench: Bench, dense: Bundle, state: Path) -> None:
    """It says which runtime it needs."""
    wanted = (("chip", {"on": [LITERT]}),)
    found = Selector(state).choose(dense, Wish(wanted, (TFLITE_RUNTIME,)))
    assert found.rows[0].reason == "needs ai-edge-litert, which is not installed or not allowed here"
    assert [miss.retry for miss in found.misses] == [None]


def test_nothing_that_agrees_is_an_error_with_each_reason(bench: Bench, dense: Bundle, state: Path) -> None:
    """All reasons stand in the one line; what may pass is told for the background."""
    bench.rows = {
        "cpu on ai-edge-litert": {"verdict": "refused", "reason": "rubbish"},
        "chip on ai-edge-litert": {"verdict": "failed", "reason": "no device"},
    }
    with pytest.raises(NothingAgreesError, match=r"chip on .*: no device; cpu on .*: rubbish") as caught:
        Selector(state).choose(dense, Wish(CHIP, (LITERT,)))
    assert [miss.retry is not None for miss in caught.value.misses] == [True]


def test_threads_auto_measures_one_two_and_four(
    bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as there are CPUs; an accelerator with more than one only where it leaves work to the CPU."""
    monkeypatch.setattr(wish.os, "sched_getaffinity", lambda _: set(range(3)))
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, (LITERT,), "auto"))
    assert bench.jobs == ["cpu on ai-edge-litert", "cpu on ai-edge-litert, 2 threads", "chip on ai-edge-litert"]
    bench.jobs.clear()
    bench.rows["chip on ai-edge-litert"] = {"mapping": "partial"}
    Selector(state).choose(dense, Wish(CHIP, (LITERT,), "auto"), fresh=True)
    assert bench.jobs[2:] == ["chip on ai-edge-litert", "chip on ai-edge-litert, 2 threads"]


def test_time_for_all_is_bounded(bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU took it all, but for its own time: what is not measured says so, and is asked for at the next start."""
    clock = [0]
    monkeypatch.setattr("edged.selection.selector.now_ns", lambda: clock[0])
    seconds: list[float] = []

    def takes_long(job: Job) -> None:
        seconds.append(job.seconds)
        clock[0] += 90 * 10**9

    bench.before = takes_long
    found = Selector(state, 60, 100).choose(dense, Wish(CHIP_AND_CPU, BOTH_RUNTIMES))
    assert seconds == [60, 60, 10]
    assert [row.verdict for row in found.rows[:2]] == ["slower", "unmeasured"]
    assert "no time was left of the 100 s" in found.rows[1].reason
    Selector(state).choose(dense, Wish(CHIP_AND_CPU, BOTH_RUNTIMES))
    assert bench.jobs[3:] == ["chip on tflite-runtime"]


@pytest.mark.parametrize("first_agrees", [True, False])
def test_the_cpu_has_time_of_its_own_until_it_can_serve(
    first_agrees: bool, bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none for anything else: one of its candidates serves, and no more than one is needed for that."""
    clock = [0]
    monkeypatch.setattr("edged.selection.selector.now_ns", lambda: clock[0])

    def takes_long(_: Job) -> None:
        clock[0] += 90 * 10**9

    bench.before = takes_long
    bench.rows["cpu on ai-edge-litert"] = {} if first_agrees else {"verdict": "failed", "reason": "no memory"}
    found = Selector(state, 60, 0.5).choose(dense, Wish(CHIP_AND_CPU, BOTH_RUNTIMES))
    assert found.chosen.delegate == "cpu"
    assert bench.jobs == [f"cpu on {name}" for name in BOTH_RUNTIMES[: 1 if first_agrees else 2]]
    assert {row.verdict for row in found.rows if row.delegate == "chip"} == {"unmeasured"}


def test_a_cpu_that_is_known_needs_no_time_of_its_own(
    bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves without: another candidate of the CPU waits like all others."""
    Selector(state).choose(dense, Wish(CPU, (LITERT,)))
    monkeypatch.setattr("edged.selection.selector.LEAST_S", 1000.0)
    Selector(state).choose(dense, Wish(CPU, BOTH_RUNTIMES))
    assert bench.jobs == ["cpu on ai-edge-litert"]


def test_auto_takes_what_is_here_and_remembers_it(
    bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked for once while the machine looks the same, and again when it does not."""
    monkeypatch.setattr(finding, "looks", lambda: "today")
    for _ in range(2):
        found = Selector(state).choose(dense, Wish(None, (LITERT,)))
        assert [row.delegate for row in found.rows] == ["cpu", "chip"]
    assert bench.probed == ["chip", "chip"]  # once to look, once before it is measured
    monkeypatch.setattr(finding, "looks", lambda: "tomorrow")
    bench.probe = Probe(available=False, reason="unplugged")
    found = Selector(state).choose(dense, Wish(None, (LITERT,)))
    assert [row.delegate for row in found.rows] == ["cpu"]
    assert found.missed == ""


def test_unknown_names_and_options_are_the_callers_mistake(bench: Bench, dense: Bundle, state: Path) -> None:
    """Nothing is measured."""
    with pytest.raises(KeyError, match="chop"):
        Selector(state).choose(dense, Wish((("chop", {}),), (LITERT,)))
    with pytest.raises(ValueError, match="unknown option 'x'"):
        Selector(state).choose(dense, Wish((("cpu", {"x": 1}),), (LITERT,)))
    assert bench.jobs == []


def test_every_step_that_takes_time_is_told(bench: Bench, dense: Bundle, state: Path) -> None:
    """A line for each candidate, and none when all is known."""
    lines: list[str] = []
    for _ in range(2):
        Selector(state).choose(dense, Wish(CPU, BOTH_RUNTIMES), lines.append)
    assert lines == [f"trying dense on cpu on {name} (first start with it)" for name in BOTH_RUNTIMES]


def test_a_known_bundle_does_not_wait_for_anothers_measurement(bench: Bench, dense: Bundle, state: Path) -> None:
    """One is under way, for up to minutes; what is known is told at once."""
    selector, told = Selector(state), []
    selector.choose(dense, Wish(CPU, (LITERT,)))
    with selector.measuring(lambda _: None):
        asking = threading.Thread(target=lambda: told.append(selector.choose(dense, Wish(CPU, (LITERT,)))), daemon=True)
        asking.start()
        asking.join(5)
        assert len(told) == 1


def test_two_selectors_do_not_measure_at_once(bench: Bench, dense: Bundle, state: Path) -> None:
    """The second waits, says so, and finds known what the first measured meanwhile."""
    other = Selector(state.with_name("other"))
    other.choose(dense, Wish(CPU, (LITERT,)))
    first, second = Selector(state), Selector(state)
    lines: list[str] = []
    with first.measuring(lambda _: None):
        asking = threading.Thread(target=lambda: second.choose(dense, Wish(CPU, (LITERT,)), lines.append))
        asking.start()
        eventually(lambda: lines == ["waiting for another process that measures"], "it waits")
        shutil.copy(other.file, first.file)  # what the first has measured by now
    asking.join(10)
    assert bench.jobs == ["cpu on ai-edge-litert"]


def test_who_serves_from_the_directory_is_known(state: Path) -> None:
    """From the announcement until the stop; several may."""
    assert not served(state)
    first, second = Selector(state), Selector(state)
    first.announce()
    second.announce()
    first.stop()
    assert served(state)
    second.stop()
    assert not served(state)


def test_a_look_at_who_serves_hides_nobody(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look takes the lock for a moment, just when a daemon starts: the daemon takes it after that."""
    first = Selector(state)
    first.announce()  # makes the file
    first.stop()
    looking = os.open(state / locks.SERVING, os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_EX)
    monkeypatch.setattr(locks.time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
    daemon = Selector(state)
    daemon.announce()
    os.close(looking)
    assert served(state)
    daemon.stop()


def test_many_announcements_are_one(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model's thread says it, at the same time; after the stop nobody does any more."""
    made: list[Any] = []
    presence = locks.Presence

    def slowly(directory: Path) -> Any:
        threading.Event().wait(0.02)
        made.append(presence(directory))
        return made[-1]

    monkeypatch.setattr(locks, "Presence", slowly)
    selector = Selector(state)
    threads = [threading.Thread(target=selector.announce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    selector.stop()
    selector.announce()
    assert len(made) == 1
    assert not served(state)


def test_after_a_stop_nothing_is_looked_for_nor_remembered(
    bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not found because nobody looked is found at the next start."""
    monkeypatch.setattr(finding, "looks", lambda: "today")
    selector = Selector(state)
    monkeypatch.setattr(probing, "probe_each", lambda wanted, stopped: [_stopped(stopped) for _ in wanted])
    selector.stop()
    selector.choose(dense, Wish(None, (LITERT,)))
    assert Selector(state).keeping.found() is None


def _stopped(event: threading.Event) -> Probe:
    assert event.is_set()
    return Probe(available=False)


def test_what_is_judged_beside_a_service_has_no_priority(bench: Bench, dense: Bundle, state: Path) -> None:
    """The model's CPUs, and ordinary priority there; it is known afterwards under the thread's own."""
    policies: list[ThreadPolicy] = []
    bench.before = lambda job: policies.append(job.policy)
    selector, own = Selector(state), ThreadPolicy((0,), "fifo")
    asked = Wish(CPU, (LITERT,), policy=own)
    selector.choose(dense, asked, aside=True)
    assert policies == [ThreadPolicy((0,), "off")]
    assert selector.agrees(dense, Candidate(LITERT), own)
    assert not selector.agrees(dense, Candidate(LITERT), ThreadPolicy((0,), "off"))


def test_what_was_not_measured_for_want_of_time_is_tried_later(
    bench: Bench, dense: Bundle, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the background, where there is time."""
    monkeypatch.setattr("edged.selection.selector.LEAST_S", 1000.0)
    found = Selector(state).choose(dense, Wish(CHIP, (LITERT,)))
    assert found.chosen.delegate == "cpu"
    assert [miss.retry is not None for miss in found.misses] == [True]


def test_the_defaults_are_the_configurations(state: Path) -> None:
    """One home for how long things may take."""
    selector, rules = Selector(state), SelectionConfig()
    assert (selector.candidate_s, selector.total_s) == (rules.candidate_s, rules.total_s)


def test_the_file_is_json_that_a_person_can_read(bench: Bench, dense: Bundle, state: Path) -> None:
    """Each row stands beside all that it depends on."""
    selector = Selector(state)
    selector.choose(dense, Wish(CPU, (LITERT,)))
    (kept,) = json.loads(selector.file.read_text())["rows"].values()
    assert kept["key"]["model"] == dense.model_sha256
    assert kept["row"]["verdict"] == "agrees"
