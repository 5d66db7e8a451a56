"""The test delegate does what it says, in each runtime: the bare interpreter, in children that may die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import delegates, tflitefiles

from edged.engines.tflite_runtime import Runtime

# It prints a line of JSON for each step, so what was reached is known however it ends. plan: a text for each invoke,
# of which + makes the file `flag` before it, and - takes it away.
_SCRIPT = """
import json, os, sys, time
import numpy as np
from {package}.interpreter import Interpreter, load_delegate
asked = json.loads(sys.argv[1])
say = lambda **found: print(json.dumps(found), flush=True)
say(step="import")
began = time.perf_counter()
try:
    delegate = load_delegate(asked["library"], asked["options"])
    interpreter = Interpreter(model_path=asked["model"], experimental_delegates=[delegate])
    taken = [op["op_name"] for op in interpreter._get_ops_details()].count("DELEGATE")
    interpreter.allocate_tensors()
except (AttributeError, OSError, RuntimeError, ValueError) as exc:
    say(step="refused", text=repr(exc))
    sys.exit(0)
say(step="open", taken=taken, took=time.perf_counter() - began)
x = np.array(asked["x"], np.float32)
(to,), (of,) = interpreter.get_input_details(), interpreter.get_output_details()
for plan in asked["plan"]:
    if plan == "+":
        open(asked["flag"], "w").close()
    if plan == "-":
        os.unlink(asked["flag"])
    interpreter.set_tensor(to["index"], x)
    began = time.perf_counter()
    try:
        interpreter.invoke()
        say(step="invoke", y=interpreter.get_tensor(of["index"]).tolist(), took=time.perf_counter() - began)
    except RuntimeError as exc:
        say(step="failed", text=repr(exc))
"""

X = np.random.default_rng(7).uniform(-2, 2, (1, delegates.SIZE)).astype(np.float32)
GOOD, WRONG, NAN, ERROR = "good", "wrong", "nan", "error"


@dataclass(frozen=True)
class Ran:
    """What a child told: how it ended, its steps, and the delegate's own log."""

    code: int
    steps: Sequence[Mapping[str, Any]]
    log: Sequence[str]

    @property
    def refused(self) -> str:
        """Why it did not open; empty when it did, or died."""
        return str(self.steps[-1]["text"]) if self.steps[-1]["step"] == "refused" else ""

    @property
    def opened(self) -> Mapping[str, Any]:
        """What was told when it opened."""
        return next(step for step in self.steps if step["step"] == "open")

    @property
    def answers(self) -> Sequence[Mapping[str, Any]]:
        """The invokes that came back, well or not."""
        return [step for step in self.steps if step["step"] in {"invoke", "failed"}]

    def judged(self, chain: Sequence[str] = delegates.OPS) -> list[str]:
        """Say of each invoke whether the numbers are what numpy computes."""
        return [_judged(step, chain) for step in self.answers]


def _judged(step: Mapping[str, Any], chain: Sequence[str]) -> str:
    if step["step"] == "failed":
        return ERROR
    y = np.array(step["y"], np.float32)
    if np.isnan(y).any():
        return NAN
    return GOOD if np.array_equal(y, delegates.adder_expected(X, chain)) else WRONG


class Bench:
    """Runs children on one runtime, in a folder of its own."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        self.folder, self._runtime = folder, runtime
        self.flag = folder / "flag"

    def command(self, plan: str, chain: Sequence[str], library: Path, options: Mapping[str, object]) -> list[str]:
        """Write the model and return the command line."""
        model = self.folder / "m.tflite"
        model.write_bytes(delegates.adder_model(chain))
        given = {key: str(value) for key, value in {"log": self.folder / "log", **options}.items()}
        asked = {
            "library": str(library), "options": given, "model": str(model), "flag": str(self.flag), "plan": plan,
            "x": X.tolist(),
        }  # fmt: skip
        return [sys.executable, "-c", _SCRIPT.format(package=self._runtime.package), json.dumps(asked)]

    def run(
        self, plan: str = "..", chain: Sequence[str] = delegates.OPS, library: Path | None = None, **options: Any
    ) -> Ran:
        """Run a child to its end."""
        command = self.command(plan, chain, library or delegates.library(), options)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout, done.stderr
        return Ran(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], self.log())

    def log(self) -> list[str]:
        """Return the delegate's log."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path, runtime: Runtime) -> Bench:
    """One for each runtime."""
    return Bench(tmp_path, runtime)


def test_it_computes_all_by_itself(bench: Bench) -> None:
    """It takes all six nodes as one group, and its numbers are numpy's to the last bit."""
    ran = bench.run()
    assert ran.judged() == [GOOD, GOOD]
    assert ran.opened["taken"] == 1
    assert ran.log == ["created", "claimed 6", "kernel 6", "invoke 1", "invoke 2", "destroyed"]


def test_an_op_that_it_leaves_parts_the_model_in_two(bench: Bench) -> None:
    """SUB stays with the CPU: two groups, and still the right numbers."""
    ran = bench.run(chain=delegates.SPLIT)
    assert ran.judged(delegates.SPLIT) == [GOOD, GOOD]
    assert ran.opened["taken"] == 2
    assert ran.log[1:4] == ["claimed 5", "kernel 2", "kernel 3"]


@pytest.mark.parametrize(
    ("options", "claimed", "groups"),
    [({"max_nodes": 0}, 0, 0), ({"max_nodes": 1}, 1, 1), ({"ops": "MUL"}, 3, 3), ({"ops": "ADD,MUL"}, 6, 1)],
)
def test_it_takes_as_much_as_it_is_told(bench: Bench, options: dict[str, Any], claimed: int, groups: int) -> None:
    """Nothing, the first node only, one kind of op, or all; whoever computes, the numbers are right."""
    ran = bench.run(**options)
    assert ran.judged() == [GOOD, GOOD]
    assert ran.opened["taken"] == groups
    assert f"claimed {claimed}" in ran.log


def test_a_fused_activation_is_not_taken(bench: Bench) -> None:
    """It would have to compute that too."""
    command = bench.command(".", delegates.OPS, delegates.library(), {})
    model, schema = bench.folder / "m.tflite", tflitefiles.schema()
    loaded = schema.ModelT.InitFromPackedBuf(bytearray(model.read_bytes()), 0)
    loaded.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.RELU
    model.write_bytes(tflitefiles.packed(**vars(loaded)))
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert "claimed 5" in bench.log()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fail": "create"}, "no such device"),
        ({"fail": "unplugged"}, "no such device"),
        ({"fail": "prepare"}, "no device"),
        ({"fail": "kernel_prepare"}, "does not fit the device"),
        ({"colour": "blue"}, "unknown option colour=blue"),
        ({"after": "soon"}, "unknown option after=soon"),
        ({"fail": "politely"}, "unknown value of fail"),
        ({"fail": "nan", "where": "open"}, "where is for crashes"),
        ({"fail": "hang", "where": "elsewhere"}, "unknown value of where"),
    ],
)
def test_it_refuses_to_open(bench: Bench, options: dict[str, Any], text: str) -> None:
    """Each step of opening fails with its own text; so does an option that does not exist."""
    ran = bench.run(**options)
    assert (ran.code, ran.answers) == (0, [])
    assert text in ran.refused


def test_a_kernel_that_cannot_be_made_is_told_or_kills(bench: Bench, runtime: Runtime) -> None:
    """fail=kernel_init: ai-edge-litert raises; tflite-runtime does not check, and the process is lost."""
    ran = bench.run(fail="kernel_init")
    if runtime.name == "ai-edge-litert":
        assert "Failed to initialize kernel" in ran.refused
    else:
        assert (ran.code, ran.steps[-1]["step"]) == (-signal.SIGSEGV, "import")


@pytest.mark.parametrize(("library", "error"), [("not_a_library", "OSError"), ("not_a_delegate", "AttributeError")])
def test_what_is_no_delegate(bench: Bench, library: str, error: str) -> None:
    """A text called .so cannot be loaded; a library without the two functions can, and is refused."""
    ran = bench.run(library=getattr(delegates, library)())
    assert ran.refused.startswith(error)


@pytest.mark.parametrize(("fail", "found"), [("invoke", ERROR), ("unplugged", ERROR), ("nan", NAN), ("wrong", WRONG)])
def test_a_failure_that_starts_late_and_stays(bench: Bench, fail: str, found: str) -> None:
    """after=3: two good answers, then the failure, for good."""
    options: dict[str, Any] = {"when": bench.flag} if fail == "unplugged" else {"after": 3}
    ran = bench.run(plan="..+.." if fail == "unplugged" else ".....", fail=fail, **options)
    assert ran.judged() == [GOOD, GOOD, found, found, found]


def test_wrong_numbers_are_off_by_one(bench: Bench) -> None:
    """fail=wrong is visible in any tolerance, and yet plausible."""
    (answer,) = bench.run(plan=".", fail="wrong").answers
    assert np.allclose(np.array(answer["y"]) - delegates.adder_expected(X), 1.0, atol=1e-5)


def test_a_burst_ends_by_itself(bench: Bench) -> None:
    """fail=burst: NaN three times, then good again; count gives any failure an end."""
    assert bench.run(plan="." * 6, fail="burst", after=2).judged() == [GOOD, NAN, NAN, NAN, GOOD, GOOD]
    assert bench.run(plan="." * 4, fail="invoke", count=2).judged() == [ERROR, ERROR, GOOD, GOOD]


def test_it_can_be_unplugged_and_plugged_in_again(bench: Bench) -> None:
    """when=FILE: it fails only while the file is there, in the midst of running as at opening."""
    ran = bench.run(plan=".+.-.", fail="invoke", when=bench.flag)
    assert ran.judged() == [GOOD, ERROR, ERROR, GOOD, GOOD]
    bench.flag.touch()
    assert "no such device" in bench.run(fail="create", when=bench.flag).refused
    bench.flag.unlink()
    assert bench.run(fail="create", when=bench.flag).judged() == [GOOD, GOOD]


@pytest.mark.parametrize(("fail", "code"), [("segfault", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("exit", 3)])
@pytest.mark.parametrize("where", ["invoke", "create", "open"])
def test_it_kills_its_process(bench: Bench, fail: str, code: int, where: str) -> None:
    """At its second invoke, or while it opens: by the signal or the code that its name says."""
    options: dict[str, Any] = {"after": 2} if where == "invoke" else {"where": where}
    ran = bench.run(fail=fail, **options)
    assert ran.code == code
    assert ran.judged() == ([GOOD] if where == "invoke" else [])
    assert ("created" in ran.log) == (where != "create")


@pytest.mark.parametrize("where", ["invoke", "create", "open"])
def test_it_hangs(bench: Bench, where: str) -> None:
    """It says how far it came, and then nothing more; the parent has to kill it."""
    options: dict[str, object] = {"after": 2} if where == "invoke" else {"where": where}
    command = bench.command("...", delegates.OPS, delegates.library(), {"fail": "hang", **options})
    expected = ["import", "open", "invoke"] if where == "invoke" else ["import"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        steps = [json.loads(child.stdout.readline())["step"] for _ in expected]
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.kill()
        assert (steps, child.stdout.read()) == (expected, b"")


def test_it_takes_its_time(bench: Bench) -> None:
    """slow_first_ms: the first invoke only; slow_ms: each; compile_ms: opening."""
    first, second = (step["took"] for step in bench.run(slow_first_ms=300, slow_ms=50).answers)
    assert first >= 0.35
    assert 0.05 <= second < first
    assert bench.run(compile_ms=300).opened["took"] >= 0.3


def test_a_damaged_cache_is_used_as_found(bench: Bench) -> None:
    """cache=DIR: compiled once, then loaded; one flipped bit gives wrong numbers, and nobody says so."""
    first, again = bench.run(cache=bench.folder), bench.run(cache=bench.folder, compile_ms=60_000)
    assert first.judged() == again.judged() == [GOOD, GOOD]
    assert [line for line in again.log if "cache" in line] == ["cache miss", "cache hit"]
    compiled = bench.folder / "compiled.bin"
    data = bytearray(compiled.read_bytes())
    data[4] ^= 1
    compiled.write_bytes(data)
    assert bench.run(cache=bench.folder).judged() == [WRONG, WRONG]


def test_a_bundle_with_a_twin_runs_on_the_delegate_alone(bench: Bench) -> None:
    """The compiled model's ops are unknown to the CPU; the delegate computes them, to the same numbers."""
    command = bench.command("..", delegates.OPS, delegates.library(), {})
    model = bench.folder / "m.tflite"
    model.write_bytes(delegates.adder_model(custom=True))
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert [_judged(json.loads(line), delegates.OPS) for line in done.stdout.splitlines()[2:]] == [GOOD, GOOD]
    without = bench.command("..", delegates.OPS, delegates.library(), {"max_nodes": 0})
    model.write_bytes(delegates.adder_model(custom=True))
    refused = subprocess.run(without, capture_output=True, text=True, check=True, timeout=60)
    assert "edged-test-add" in json.loads(refused.stdout.splitlines()[-1])["text"]
