"""The engine in a process of its own, with the test delegate playing every failure: what it costs is that process."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support import delegates, tinymodel

from edged import bundle
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.clock import NS_PER_MS
from edged.engines import isolated_process, opening
from edged.engines.base import EngineLostError
from edged.engines.candidate import Candidate
from edged.engines.isolated import IsolatedEngine
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError

X = np.linspace(-2, 2, delegates.SIZE, dtype=np.float32)[None]


@pytest.fixture
def loaded(tmp_path: Path) -> Bundle:
    return bundle.read(delegates.adder_bundle(tmp_path / "b"))


@pytest.fixture
def opened(loaded: Bundle, runtime: Runtime) -> Iterator[Callable[..., IsolatedEngine]]:
    """Opens the adder model on the test delegate with the options given; closes what was opened."""
    engines = []

    def open_one(policy: ThreadPolicy = opening.ORDINARY, timeout_s: float = 60, **options: str) -> IsolatedEngine:
        engines.append(IsolatedEngine(loaded, accelerated(runtime, **options), policy, timeout_s=timeout_s))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


def accelerated(runtime: Runtime, **options: str) -> Candidate:
    where = {"library": str(delegates.library()), "options": options}
    return Candidate.of(runtime.name, "external", where)


def answer(engine: IsolatedEngine) -> bytes:
    engine.inputs[0][...] = X
    engine.invoke()
    return engine.outputs[0].tobytes()


EXPECTED = delegates.adder_expected(X).tobytes()


def gone(pid: int) -> bool:
    """Whether the process has ended and is buried, too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def ended(pid: int) -> bool:
    """Whether it has ended; the system's first process, whose child it may be, takes its time to bury it."""
    return gone(pid) or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def soon(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return what()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def zombies() -> int:
    done = subprocess.run(["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True)
    return done.stdout.count("Z")


# --- serving ----------------------------------------------------------------------------------------------------------


def test_the_delegate_serves(opened: Callable[..., IsolatedEngine]) -> None:
    """Its answers are numpy's to the last bit; its share is told, without what XNNPACK took of the rest."""
    engine = opened()
    assert answer(engine) == EXPECTED
    assert (engine.info.nodes_delegated, engine.info.nodes_total, engine.info.mapping) == (6, 6, "full")
    assert engine.info.delegate.startswith("external")
    part = opened(max_nodes="2")
    assert answer(part) == EXPECTED
    assert (part.info.nodes_delegated, part.info.nodes_total, part.info.mapping) == (2, 6, "partial")
    none = opened(max_nodes="0")
    assert (none.info.nodes_delegated, none.info.mapping) == (0, "partial")


def test_a_model_that_only_the_accelerator_can_run(runtime: Runtime, tmp_path: Path) -> None:
    """The accelerator gets the compiled model, a CPU in a process of its own the twin."""
    both = bundle.read(delegates.adder_bundle(tmp_path / "twin", twin=True))
    for candidate in (accelerated(runtime), Candidate(runtime.name)):
        engine = IsolatedEngine(both, candidate)
        assert answer(engine) == EXPECTED
        engine.close()


def test_a_compiled_model_without_signatures(runtime: Runtime, tmp_path: Path) -> None:
    """Some compilers drop names: its tensors are bound by their place in the twin."""
    both = bundle.read(delegates.adder_bundle(tmp_path / "twin", twin=True))
    nameless = {**both.files, bundle.MODEL: tinymodel.without_signatures(both.model)}
    engine = IsolatedEngine(Bundle(both.path, both.manifest, nameless), accelerated(runtime))
    assert answer(engine) == EXPECTED
    engine.close()


def test_the_model_comes_from_memory(runtime: Runtime, tmp_path: Path) -> None:
    """The file was verified when it was read; what lies there by now is never opened."""
    path = delegates.adder_bundle(tmp_path / "b")
    read = bundle.read(path)
    shutil.rmtree(path)
    engine = IsolatedEngine(read, accelerated(runtime))
    assert answer(engine) == EXPECTED
    engine.close()


def test_any_thread_may_use_it(opened: Callable[..., IsolatedEngine]) -> None:
    """One at a time; and it outlives the thread that opened it, which PR_SET_PDEATHSIG would not let it do."""
    made: list[IsolatedEngine] = []
    for use in (lambda: made.append(opened()), lambda: answer(made[0])):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    time.sleep(0.1)
    assert answer(made[0]) == EXPECTED


def test_the_policy_is_that_of_the_process(opened: Callable[..., IsolatedEngine]) -> None:
    """Its one thread is pinned; what was achieved is told in words."""
    cpu = min(os.sched_getaffinity(0))
    engine = opened(ThreadPolicy((cpu,), "off"))
    assert os.sched_getaffinity(engine.pid) == {cpu}
    assert engine.info.scheduling == f"cpus {cpu}, off"


def test_it_stands_apart(opened: Callable[..., IsolatedEngine]) -> None:
    """A session of its own, so that Ctrl-C at the terminal is the daemon's alone; and a crash writes no core dump."""
    engine = opened()
    assert os.getsid(engine.pid) == engine.pid
    limits = Path(f"/proc/{engine.pid}/limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["1", "1"]


# --- failures at run time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail", "reason", "code"),
    [
        ("segfault", "was killed by SIGSEGV", -signal.SIGSEGV),
        ("abort", "was killed by SIGABRT", -signal.SIGABRT),
        ("exit", "ended with 3", 3),
    ],
)
def test_a_death_is_told_at_once(opened: Callable[..., IsolatedEngine], fail: str, reason: str, code: int) -> None:
    """Long before the limit, in words and in figures; and every call after it says the same."""
    engine = opened(fail=fail, after="3")
    assert answer(engine) == answer(engine) == EXPECTED
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(EngineLostError, match=f"^{reason}") as caught:
            engine.invoke()
        assert (caught.value.code, caught.value.hung) == (code, False)
    assert time.monotonic() - started < engine.limit_ns / 1e9 / 2
    assert gone(engine.pid)


def test_an_end_between_requests_is_told_at_the_next(opened: Callable[..., IsolatedEngine]) -> None:
    """SIGKILL mostly means: out of memory."""
    engine = opened()
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineLostError, match=r"^was killed by SIGKILL \(most often: out of memory\)$") as caught:
        engine.invoke()
    assert (caught.value.code, caught.value.hung) == (-signal.SIGKILL, False)


def test_an_end_between_requests_can_be_looked_at(opened: Callable[..., IsolatedEngine]) -> None:
    """By another thread, while it works and when it is closed; the look ends nothing and takes nothing away."""
    engine, found = opened(slow_first_ms="300"), []
    asked = threading.Thread(target=answer, args=(engine,))
    asked.start()
    while asked.is_alive():
        found.append(engine.ended())
    assert set(found) == {False}
    assert answer(engine) == EXPECTED
    os.kill(engine.pid, signal.SIGKILL)
    assert soon(engine.ended)
    assert engine.ended()
    with pytest.raises(EngineLostError, match="SIGKILL"):
        engine.invoke()
    engine.close()
    assert not engine.ended()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_hang_ends_at_the_limit(opened: Callable[..., IsolatedEngine], stopped: bool) -> None:
    """A library that does not return, or a process that is stopped: killed and buried before the caller is told."""
    engine = opened(**({} if stopped else {"fail": "hang", "after": "2"}))
    assert answer(engine) == EXPECTED
    engine.limit_ns = 120 * NS_PER_MS
    if stopped:
        os.kill(engine.pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(EngineLostError, match=r"^gave no answer within 120 ms \(hang\)$") as caught:
        engine.invoke()
    assert (caught.value.code, caught.value.hung) == (None, True)
    assert time.monotonic() - started > 0.119
    assert gone(engine.pid)
    engine.outputs[0][...] = 7  # they stay until close, and nobody else writes to them
    time.sleep(0.05)
    assert (engine.outputs[0] == 7).all()


def test_the_limit_is_rounded_up(opened: Callable[..., IsolatedEngine]) -> None:
    """To whole milliseconds, so that no limit means none at all."""
    engine = opened()
    for limit, rounded in ((1, 1), (NS_PER_MS, 1), (NS_PER_MS + 1, 2), (0, 1)):
        engine.limit_ns = limit
        assert engine.limit_ns == rounded * NS_PER_MS


def test_a_slow_answer_within_the_limit_is_an_answer(opened: Callable[..., IsolatedEngine]) -> None:
    """Waiting costs nothing but time; the next one is not confused by it."""
    engine = opened(slow_first_ms="300")
    assert answer(engine) == EXPECTED
    assert answer(engine) == EXPECTED


def test_an_invoke_error_leaves_it_alive(opened: Callable[..., IsolatedEngine]) -> None:
    """The runtime's own words arrive, and the process goes on."""
    engine = opened(fail="invoke", after="2", count="2")
    assert answer(engine) == EXPECTED
    for _ in range(2):
        with pytest.raises(RuntimeError, match="testdelegate: device lost") as caught:
            engine.invoke()
        assert not isinstance(caught.value, EngineLostError)
    assert answer(engine) == EXPECTED


def test_what_abort_said_is_told(runtime: Runtime, opened: Callable[..., IsolatedEngine]) -> None:
    """Standard error of the process is read when it is dead; the last line that says something, clipped."""
    engine = opened()
    os.write(engine._process._said, b"noise\nterminate called: no more " + b"x" * 1000 + b"\n\n")
    os.kill(engine.pid, signal.SIGABRT)
    with pytest.raises(EngineLostError, match=r"^was killed by SIGABRT: terminate called: no more x+…$") as caught:
        engine.invoke()
    assert len(str(caught.value)) < 400


def test_one_that_cannot_be_killed_blocks_nobody(
    opened: Callable[..., IsolatedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver can hold a process in the kernel: it is left, said, and buried when it ends after all."""
    engine = opened(fail="hang")
    engine.limit_ns = NS_PER_MS
    monkeypatch.setattr(isolated_process, "_KILLING_S", 0.05)
    monkeypatch.setattr(isolated_process, "_kill", lambda _: None)
    with pytest.raises(EngineLostError, match=rf"\(hang\); process {engine.pid} does not end$"):
        engine.invoke()
    engine.close()
    assert not gone(engine.pid)
    monkeypatch.undo()
    os.kill(engine.pid, signal.SIGKILL)
    assert soon(lambda: ended(engine.pid))
    opened().close()  # whoever ends next buries it
    assert gone(engine.pid)
    assert isolated_process._left == []


# --- failures at opening ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"fail": "create"}, {"fail": "prepare"}, {"fail": "kernel_prepare"}, {"speed": "9"}]
)
def test_a_refusal_is_told_as_in_the_same_process(
    opened: Callable[..., IsolatedEngine], loaded: Bundle, runtime: Runtime, options: dict[str, str]
) -> None:
    """Class and text."""
    with pytest.raises((RuntimeError, ValueError)) as here:
        opening.open_here(loaded, accelerated(runtime, **options))
    with pytest.raises(type(here.value)) as there:
        opened(**options)
    assert str(there.value) == str(here.value)


def test_a_bundle_that_lies_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    """The check against the tensors is made in the process, and told here."""
    specs = (tinymodel.spec("x", (1, 4)),), (tinymodel.spec("y", (1, 2)),)
    manifest = bundle.Manifest(1, "b", 1, {}, "serving_default", *specs)
    bundle.write(tmp_path / "b", manifest, {bundle.MODEL: tinymodel.dense_model()})
    with pytest.raises(BadDataError, match=r"tensor 'x' is float32\[1, 3\], bundle.json says float32\[1, 4\]"):
        IsolatedEngine(bundle.read(tmp_path / "b"), Candidate(runtime.name))


@pytest.mark.parametrize("where", ["create", "open"])
def test_a_crash_while_opening(opened: Callable[..., IsolatedEngine], where: str) -> None:
    """Is told as what it is."""
    with pytest.raises(EngineLostError, match=r"^was killed by SIGSEGV while opening$") as caught:
        opened(fail="segfault", where=where)
    assert (caught.value.code, caught.value.hung) == (-signal.SIGSEGV, False)


def test_an_opening_without_end(opened: Callable[..., IsolatedEngine]) -> None:
    """Is ended at its time; nothing of it is left."""
    gc.collect()  # what earlier tests left in their tracebacks
    before = descriptors()
    with pytest.raises(EngineLostError, match=r"^did not open within 1 s$") as caught:
        opened(fail="hang", where="open", timeout_s=1)
    assert (caught.value.code, caught.value.hung) == (None, True)
    del caught  # it holds the frames, and they the memory
    assert (descriptors(), zombies()) == (before, 0)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_close_lets_the_device_go(opened: Callable[..., IsolatedEngine], tmp_path: Path) -> None:
    """The library destroys its delegate, the process ends, and closing twice does no harm."""
    log = tmp_path / "log"
    engine = opened(log=str(log))
    answer(engine)
    engine.close()
    assert gone(engine.pid)
    assert log.read_text().splitlines()[-1] == "destroyed"
    engine.close()
    with pytest.raises(EngineLostError, match="closed"):
        engine.invoke()


def test_nothing_leaks(runtime: Runtime, loaded: Bundle) -> None:
    """Descriptors, threads, mappings and zombies are as before after many engines, lost ones among them."""

    def counted() -> tuple[int, int, int, int]:
        maps = Path("/proc/self/maps").read_text().count("edged-")
        return descriptors(), threading.active_count(), maps, zombies()

    IsolatedEngine(loaded, accelerated(runtime)).close()  # what the first one imports
    gc.collect()  # what earlier tests left in their tracebacks
    before = counted()
    for number in range(4):
        engine = IsolatedEngine(loaded, accelerated(runtime, **({"fail": "exit"} if number % 2 else {})))
        if number % 2:
            with pytest.raises(EngineLostError):
                engine.invoke()
        else:
            answer(engine)
        engine.close()
        with pytest.raises(ValueError, match="no such device"):
            IsolatedEngine(loaded, accelerated(runtime, fail="create"))
    del engine
    assert counted() == before


PARENT = """
import sys
from pathlib import Path
from edged import bundle
from edged.clock import NS_PER_S
from edged.engines.candidate import Candidate
from edged.engines.isolated import IsolatedEngine
engine = IsolatedEngine(bundle.read(Path(sys.argv[1])), Candidate(*sys.argv[2:5]))
engine.limit_ns = 1000 * NS_PER_S
print(engine.pid, flush=True)
if sys.argv[5] == "ask":
    engine.invoke()
sys.stdin.read()
"""


@pytest.mark.parametrize("hanging", [True, False])
def test_it_ends_with_the_daemon(loaded: Bundle, runtime: Runtime, hanging: bool) -> None:
    """Also when the daemon is killed, and also while a library hangs and nothing of ours runs in the process."""
    candidate = accelerated(runtime, **({"fail": "hang"} if hanging else {}))
    args = [str(loaded.path), candidate.runtime, candidate.delegate, candidate.options, "ask" if hanging else ""]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        assert not gone(pid)
        parent.kill()
        assert soon(lambda: ended(pid))


CHATTY = """
import os
class Chatty:
    name, isolated, api, caches, note = "chatty", True, "interpreter", False, ""
    runtimes = frozenset({"ai-edge-litert", "tflite-runtime"})
    def __init__(self, options=None): pass
    def probe(self): raise NotImplementedError
    def open(self, module, how=None):
        os.write(2, b"opening\\n" * 100_000)
        invoke = module.Interpreter.invoke
        def talking(interpreter):
            os.write(1, b"invoke\\n" * 100)
            invoke(interpreter)
        module.Interpreter.invoke = talking
        return {}
"""


def test_a_driver_that_talks_all_the_time(
    runtime: Runtime, loaded: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never waits for a reader, what it says is kept small, and its last words are told."""
    engine = of_python(CHATTY, "chatty", runtime, loaded, tmp_path, monkeypatch)
    said = engine._process._said
    for _ in range(600):
        assert answer(engine) == EXPECTED
        assert os.fstat(said).st_size == isolated_process._SAID_BYTES
    assert engine._process.said() == "invoke"
    assert soon(lambda: os.lseek(said, 0, os.SEEK_CUR) < 2 * isolated_process._SAID_MAX)
    engine.close()


def of_python(
    source: str, name: str, runtime: Runtime, loaded: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> IsolatedEngine:
    """Open the adder model on a delegate of this name that a package in Python brings."""
    facts = tmp_path / f"{name}-1.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[edged.delegates]\n{name} = {name}:{name.title()}\n")
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return IsolatedEngine(loaded, Candidate(runtime.name, name))


def test_a_driver_that_talks_without_end_takes_no_memory(
    runtime: Runtime, loaded: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one inference nobody can tidy up: what does not fit is refused, at once, and the answers are right."""
    endless = CHATTY.replace('b"invoke\\n" * 100)', 'b"invoke\\n" * 100)\n            flood()')
    source = endless.replace("import os", FLOOD).replace("Chatty", "Flooding").replace('"chatty"', '"flooding"')
    engine = of_python(source, "flooding", runtime, loaded, tmp_path, monkeypatch)
    engine.limit_ns = 20_000 * NS_PER_MS
    for _ in range(3):
        assert answer(engine) == EXPECTED
    assert os.fstat(engine._process._said).st_blocks * 512 <= isolated_process._SAID_BYTES
    engine.close()


FLOOD = """
import os
def flood():
    refused = False
    for _ in range(64):
        try:
            os.write(2, b"x" * 100_000)
        except PermissionError:
            refused = True
    assert refused
"""


FORKING = """
import os, time
class Forking:
    name, isolated, api, caches, note = "forking", True, "interpreter", False, ""
    runtimes = frozenset({"ai-edge-litert", "tflite-runtime"})
    def __init__(self, options=None): pass
    def probe(self): raise NotImplementedError
    def open(self, module, how=None):
        pid = os.fork()
        if not pid:
            while True: time.sleep(60)
        open(os.environ["FORKED"], "w").write(str(pid))
        if os.environ.get("FORKED_ENDS"): os._exit(5)
        return {}
"""


@pytest.fixture
def forking(
    runtime: Runtime, loaded: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[IsolatedEngine, int]]:
    """Opens a library that forks; the copy holds all its descriptors. Returns the engine, and the copy's number."""
    monkeypatch.setenv("FORKED", str(tmp_path / "pid"))

    def opened() -> tuple[IsolatedEngine, int]:
        engine = of_python(FORKING, "forking", runtime, loaded, tmp_path, monkeypatch)
        return engine, int((tmp_path / "pid").read_text())

    return opened


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system cannot watch a process")
def test_a_death_is_told_though_a_copy_lives(forking: Callable[[], tuple[IsolatedEngine, int]]) -> None:
    """At once, as what it is, also to who asks without an inference; and the copy ends too."""
    engine, copy = forking()
    assert answer(engine) == EXPECTED
    assert not engine.ended()
    os.kill(engine.pid, signal.SIGKILL)
    assert soon(engine.ended)
    started = time.monotonic()
    with pytest.raises(EngineLostError, match=r"^was killed by SIGKILL") as caught:
        engine.invoke()
    assert not caught.value.hung
    assert time.monotonic() - started < engine.limit_ns / 1e9 / 2
    assert soon(lambda: ended(copy))
    engine.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system cannot watch a process")
def test_a_death_while_opening_is_told_though_a_copy_lives(
    forking: Callable[[], tuple[IsolatedEngine, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its status, and not after the time that an opening may take."""
    monkeypatch.setenv("FORKED_ENDS", "1")
    started = time.monotonic()
    with pytest.raises(EngineLostError, match=r"^ended with 5 while opening$"):
        forking()
    assert time.monotonic() - started < opening.PATIENCE_S / 2
    assert soon(lambda: ended(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize("hangs", [False, True])
def test_what_a_library_forked_ends_with_it(forking: Callable[[], tuple[IsolatedEngine, int]], hangs: bool) -> None:
    """When it is closed in order, and when it is ended by force."""
    engine, copy = forking()
    if hangs:
        os.kill(engine.pid, signal.SIGSTOP)
        engine.limit_ns = 50 * NS_PER_MS
        with pytest.raises(EngineLostError, match="hang"):
            engine.invoke()
    engine.close()
    assert soon(lambda: ended(copy))


def test_what_a_library_forked_ends_with_the_daemon(
    forking: Callable[[], tuple[IsolatedEngine, int]], runtime: Runtime, loaded: Bundle, tmp_path: Path
) -> None:
    """Killed as it is: the kernel ends the process and the copy."""
    forking()[0].close()
    args = [str(loaded.path), runtime.name, "forking", "{}", ""]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()), int((tmp_path / "pid").read_text())]
        assert not any(map(ended, pids))
        parent.kill()
        assert soon(lambda: all(map(ended, pids)))


def test_where_no_process_can_be_watched_its_socket_tells(
    opened: Callable[..., IsolatedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older system has no pidfd, or forbids it."""

    def refused(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    engine = opened()
    assert answer(engine) == EXPECTED
    os.kill(engine.pid, signal.SIGKILL)
    assert soon(engine.ended)
    with pytest.raises(EngineLostError, match="SIGKILL"):
        engine.invoke()
