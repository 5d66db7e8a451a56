"""`edged delegates` with a real accelerator that fails in every way, both runtimes, and what a second run does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import delegates, tflitefiles, tinymodel
from support.brokers import eventually
from support.commands import edged

from delegates.base import LITERT, TFLITE_RUNTIME
from edged import bundle
from edged.bundle import Bundle, Golden, Manifest
from edged.engines import tflite_runtime
from edged.engines.base import Engine, EngineLostError
from edged.selection import Selector, Wish

RUNTIME = TFLITE_RUNTIME


class Box:
    """A configuration of one model on the test delegate, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = Path(shutil.copy(delegates.library(), folder / "libchip.so"))
        self.starts = folder / "starts"
        self.said = ""  # of the last run, on standard error
        self._count_children()

    def _count_children(self) -> None:
        """Let a stand-in for the interpreter write a line for each child that edged starts."""
        self.python = self.folder / "python"
        self.python.write_text(f'#!/bin/sh\necho "$@" >> "{self.starts}"\nexec "{sys.executable}" "$@"\n')
        self.python.chmod(0o755)

    def configure(self, wanted: Any, bundle_name: str = "adder", **more: Any) -> Path:
        model = {"name": "m", "bundle": bundle_name, "delegates": wanted, "runtime": RUNTIME, "realtime": "off", **more}
        body = {
            "device": "box", "broker": {"url": "mqtt://x"}, "state_dir": "state", "models": [model],
            "selection": {"candidate_s": 5, "total_s": 60},
        }  # fmt: skip
        path = self.folder / "edged.yaml"
        path.write_text(json.dumps(body))
        return path

    def chip(self, library: Path | None = None, **options: Any) -> dict[str, Any]:
        return {"external": {"library": str(library or self.library), "options": options}}

    def told(self, *more: str, expected: int = 0) -> dict[str, Any]:
        """Run the command; return the facts of the one model."""
        self.starts.write_text("")
        code = f"import sys; sys.executable = {str(self.python)!r}; from edged.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "delegates", "-c", str(self.folder / "edged.yaml"), "--json", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == expected, done.stderr
        self.said = done.stderr
        (model,) = json.loads(done.stdout)["models"]
        return dict(model)

    def children(self) -> list[str]:
        """The modules that the last run started as children of its own."""
        return [line.split()[1] for line in self.starts.read_text().splitlines()]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    tinymodel.require_runtime(RUNTIME)
    delegates.adder_bundle(tmp_path / "adder")
    return Box(tmp_path)


def the_chip(model: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in model["candidates"] if row["delegate"] != "cpu")


FAILURES = {
    "create": ({"fail": "create"}, "failed", "testdelegate: no such device"),
    "prepare": ({"fail": "prepare"}, "failed", "testdelegate: no device"),
    "kernel_init": ({"fail": "kernel_init"}, "failed", "was killed by SIGSEGV while opening"),
    "kernel_prepare": ({"fail": "kernel_prepare"}, "failed", "testdelegate: "),
    "claims_nothing": ({"max_nodes": 0}, "refused", "takes none of the model's 6 ops, so it would be the CPU by"),
    "nan": ({"fail": "nan"}, "refused", "output 'y': not a number (NaN)"),
    "wrong": ({"fail": "wrong"}, "refused", "output 'y': off by 1"),
    "invoke": ({"fail": "invoke"}, "failed", "device lost"),
    "hang": ({"fail": "hang"}, "failed", "(hang)"),
    "segfault": ({"fail": "segfault"}, "failed", "was killed by SIGSEGV"),
    "abort": ({"fail": "abort"}, "failed", "was killed by SIGABRT"),
    "exit": ({"fail": "exit"}, "failed", "ended with 3"),
    "crash_at_open": ({"fail": "segfault", "where": "open"}, "failed", "was killed by SIGSEGV while opening"),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run with a model for each failure, and one for each library that is none: what it told, by model."""
    tinymodel.require_runtime(RUNTIME)
    folder = tmp_path_factory.mktemp("failures")
    delegates.adder_bundle(folder / "adder")
    wanted = {name: (delegates.library(), options) for name, (options, *_) in FAILURES.items()}
    wanted |= {"missing": (folder / "no.so", {}), "no_delegate": (delegates.not_a_delegate(), {})}
    wanted |= {"no_library": (delegates.not_a_library(), {})}
    models = [
        {"name": name, "delegates": {"external": {"library": str(library), "options": options}}}
        for name, (library, options) in wanted.items()
    ]
    common = {"bundle": "adder", "runtime": RUNTIME, "realtime": "off"}
    body = {"device": "box", "broker": {"url": "mqtt://x"}, "state_dir": "state", "selection": {"candidate_s": 2}}
    (folder / "edged.yaml").write_text(json.dumps({**body, "models": [{**model, **common} for model in models]}))
    done = edged("delegates", "-c", folder / "edged.yaml", "--json")
    assert done.returncode == 0, done.stderr
    return {model["name"]: model for model in json.loads(done.stdout)["models"]}


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_has_its_verdict(name: str, failures: dict[str, Any]) -> None:
    """Named with its reason; the CPU, which nobody asked for, serves, and that is told."""
    _, verdict, reason = FAILURES[name]
    model, row = failures[name], the_chip(failures[name])
    assert (row["verdict"], reason in row["reason"]) == (verdict, True), row
    assert model["chosen"]["delegate"] == "cpu"
    assert model["missed"].startswith(f"external:libedged_testdelegate.so: {verdict}: ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "no.so is not there"),
        ("no_delegate", "is no TFLite delegate"),
        ("no_library", "libtext.so"),
    ],
)
def test_what_is_no_delegate_is_unavailable(name: str, reason: str, failures: dict[str, Any]) -> None:
    """A missing library, another library and a text: each says what it is, and is not opened."""
    row = the_chip(failures[name])
    assert (row["verdict"], row["open_ms"]) == ("unavailable", None)
    assert reason in row["reason"]


def test_one_that_serves_is_chosen_with_all_its_figures(box: Box) -> None:
    """Full and partial mappings compete by time; a slow first inference is not in the percentiles."""
    box.configure(box.chip(slow_first_ms=300))
    model = box.told()
    row = the_chip(model)
    assert model["chosen"]["delegate"] == "external"
    assert model["stand_in"]["delegate"] == "cpu"
    assert model["missed"] == ""
    assert (row["nodes_taken"], row["nodes_total"], row["mapping"]) == (6, 6, "full")
    assert row["first_ms"] > 300
    assert row["p99_us"] < 100_000
    assert row["worst"] <= 1
    box.configure(box.chip(max_nodes=1))
    row = the_chip(box.told())
    assert (row["nodes_taken"], row["mapping"], row["verdict"]) == (1, "partial", "chosen")


def test_the_choice_falls_to_the_faster_one(box: Box) -> None:
    """An accelerator that needs 20 ms is beaten by the CPU where both were asked for."""
    box.configure([box.chip(slow_ms=20), "cpu"])
    model = box.told()
    assert model["chosen"]["delegate"] == "cpu"
    assert the_chip(model)["verdict"] == "slower"
    assert (the_chip(model)["p50_us"], model["missed"]) > (20_000, "")


def test_without_golden_samples_random_inputs_tell(box: Box) -> None:
    """Wrong numbers are found against the CPU, and right ones agree."""
    delegates.adder_bundle(box.folder / "bare", golden=False)
    box.configure(box.chip(fail="wrong"), "bare")
    row = the_chip(box.told())
    assert row["verdict"] == "refused"
    assert "random inputs, output 'y': off by 1" in row["reason"]
    box.configure(box.chip(fail="nan"), "bare")
    assert "NaN or infinite where the CPU has a number" in the_chip(box.told())["reason"]
    box.configure(box.chip(), "bare")
    assert the_chip(box.told())["verdict"] == "chosen"


def test_wrong_only_outside_of_the_golden_samples_is_found(box: Box) -> None:
    """It is right for as many inferences as there are golden samples and a first one, and wrong from then on."""
    box.configure(box.chip(fail="wrong", after=6))
    assert "random inputs" in the_chip(box.told())["reason"]


def test_a_model_that_only_the_accelerator_can_run_needs_its_twin(box: Box) -> None:
    """The CPU takes the twin, and stands in; the accelerator is compared with it."""
    delegates.adder_bundle(box.folder / "compiled", twin=True)
    box.configure(box.chip(), "compiled")
    model = box.told()
    assert (model["chosen"]["delegate"], model["stand_in"]["delegate"]) == ("external", "cpu")


def test_the_second_run_starts_no_child(box: Box) -> None:
    """Neither measuring nor probing: everything is known, and says that it was kept."""
    box.configure([box.chip(), "cpu"])
    first = box.told()
    assert sorted(set(box.children())) == ["delegates.probe", "edged.engines.measure"]
    assert not any(row["kept"] for row in first["candidates"])
    second = box.told()
    assert box.children() == []
    assert all(row["kept"] for row in second["candidates"])
    assert [{**row, "kept": False} for row in second["candidates"]] == first["candidates"]


def test_touching_the_library_or_the_model_measures_again(box: Box) -> None:
    """The library: the accelerator alone. The model: everything. --remeasure: everything."""
    box.configure([box.chip(), "cpu"])
    box.told()
    os.utime(box.library)
    kept = {row["delegate"]: row["kept"] for row in box.told()["candidates"]}
    assert kept == {"external:libchip.so": False, "cpu": True}
    shutil.rmtree(box.folder / "adder")
    delegates.adder_bundle(box.folder / "adder", ops=delegates.SPLIT)
    assert not any(row["kept"] for row in box.told()["candidates"])
    assert not any(row["kept"] for row in box.told("--remeasure")["candidates"])
    assert box.children().count("edged.engines.measure") == 2


def test_a_suspect_is_left_alone_until_its_library_changes(box: Box) -> None:
    """It crashed once; later runs start no child for it; a new library, or --remeasure, is another chance."""
    broken = box.folder / "broken"
    broken.touch()
    box.configure(box.chip(fail="segfault", when=str(broken)))
    assert the_chip(box.told())["verdict"] == "failed"
    row = the_chip(box.told())
    assert (row["verdict"], box.children()) == ("suspect", [])
    assert "was killed by SIGSEGV" in row["reason"]
    assert the_chip(box.told("--remeasure"))["verdict"] == "failed"
    broken.unlink()
    assert the_chip(box.told())["verdict"] == "suspect"
    os.utime(box.library)
    assert the_chip(box.told())["verdict"] == "chosen"


def test_what_hangs_does_not_hold_up_every_start(box: Box) -> None:
    """It took all the time that a candidate has; the next run leaves it alone, and says so."""
    path = box.configure(box.chip(fail="hang"))
    path.write_text(path.read_text().replace('"candidate_s": 5', '"candidate_s": 1.5'))
    assert the_chip(box.told())["verdict"] == "failed"
    row = the_chip(box.told())
    assert (row["verdict"], "(hang)" in row["reason"], box.children()) == ("suspect", True, [])


def opening(box: Box) -> subprocess.Popen[bytes]:
    """Start a run that has begun to open the accelerator, which hangs there."""
    box.configure(box.chip(fail="hang", where="open"), threads=1)
    config = json.loads((box.folder / "edged.yaml").read_text())
    config["selection"] = {"candidate_s": 60, "total_s": 120}
    (box.folder / "edged.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "edged", "delegates", "-c", str(box.folder / "edged.yaml")]
    # A daemon in the process of another test may have ignored it for this one, and a child inherits that.
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509  # no thread starts here
    )  # fmt: skip
    eventually(lambda: list((box.folder / "state").glob("opening/*.json")), "it opens the accelerator")
    return process


def test_a_start_that_died_while_opening_makes_a_suspect(box: Box) -> None:
    """SIGKILL in the middle, as when the machine goes down: the next run does not try, and the CPU serves."""
    process = opening(box)
    process.kill()
    process.wait(10)
    model = box.told()
    assert the_chip(model)["verdict"] == "suspect"
    assert the_chip(model)["reason"].startswith("an earlier start ended while it was being opened")
    assert box.children() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_one_that_was_ended_in_order_makes_none(number: signal.Signals, box: Box) -> None:
    """Somebody lost patience, or the connection: that says nothing of the accelerator."""
    process = opening(box)
    process.send_signal(number)
    assert process.wait(10) == 130
    assert list((box.folder / "state").glob("opening/*.json")) == []


class Compiling:
    """The accelerator with a compiled form that was measured and kept, as a daemon of this box opens it."""

    def __init__(self, box: Box, **options: Any) -> None:
        self.log = box.folder / "chip.log"
        chip = box.chip(cache="{cache}", compile_ms=400, log=str(self.log), **options)
        box.configure(chip)
        assert the_chip(box.told())["open_ms"] > 400
        (self.form,) = (box.folder / "state" / "compiled").glob("*/files/compiled.bin")
        self.selector, self.loaded = Selector(box.folder / "state"), bundle.read(box.folder / "adder")
        self.wish = Wish((("external", chip["external"]),), (RUNTIME,))
        self.chosen = self.selector.choose(self.loaded, self.wish).chosen

    def open(self) -> Engine:
        self.log.write_text("")
        return self.selector.open(self.loaded, self.chosen, self.wish.policy)

    def answer(self) -> tuple[bool, str]:
        """Whether it is right, and what the accelerator says of its cache."""
        with contextlib.closing(self.open()) as engine:
            engine.inputs[0][...] = 1
            engine.invoke()
            right = (engine.outputs[0] == delegates.adder_expected(np.ones((1, delegates.SIZE), np.float32))).all()
        return bool(right), next(line for line in self.log.read_text().splitlines() if line.startswith("cache"))


def test_its_compiled_form_is_kept_and_checked(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """Compiled once; a damaged one is thrown away, which is told, compiled anew, and never used."""
    chip = Compiling(box)
    good = chip.form.read_bytes()
    assert chip.answer() == (True, "cache hit")
    chip.form.write_bytes(b"\x01" * len(good))
    assert chip.answer() == (True, "cache miss")
    assert "the compile cache was thrown away: compiled.bin was changed" in caplog.text
    assert chip.form.read_bytes() == good
    assert chip.answer() == (True, "cache hit")


def test_no_device_for_a_moment_costs_no_compilation(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """Unplugged when it is opened again: that says nothing of the compiled form, which is used afterwards."""
    gone = box.folder / "gone"
    chip = Compiling(box, fail="create", when=str(gone))
    gone.touch()
    for _ in range(2):
        with pytest.raises(ValueError, match="no such device"):
            chip.open()
    gone.unlink()
    assert chip.answer() == (True, "cache hit")
    assert "thrown away" not in caplog.text


def test_a_crash_costs_the_compiled_form(box: Box) -> None:
    """A delegate that crashes when it is opened with it is not crashed with it again."""
    crash = box.folder / "crash"
    chip = Compiling(box, fail="segfault", where="open", when=str(crash))
    crash.touch()
    with pytest.raises(EngineLostError, match="SIGSEGV"):
        chip.open()
    assert not chip.form.exists()


def test_wrong_answers_after_it_failed_cost_the_compiled_form(box: Box) -> None:
    """Opened once more it is compared here, where it tells what to keep; whoever serves compares the first time."""
    wrong = box.folder / "wrong"
    chip = Compiling(box, fail="wrong", when=str(wrong))
    wrong.touch()
    chip.open().close()
    assert chip.form.exists()
    with pytest.raises(RuntimeError, match="wrong numbers: golden sample"):
        chip.open()
    assert not chip.form.exists()


def test_remeasuring_leaves_alone_what_a_daemon_uses(box: Box) -> None:
    """Its compiled form is open there: measured without one, which is told, and kept."""
    chip = Compiling(box)
    with contextlib.closing(chip.open()):
        row = the_chip(box.told("--remeasure"))
        assert (row["verdict"], row["open_ms"] > 400) == ("chosen", True)
        assert "is measured without its compiled form, which is in use" in box.said
        assert chip.form.exists()
    assert chip.answer() == (True, "cache hit")


def test_the_compiled_form_of_a_library_that_is_gone_is_removed(box: Box) -> None:
    """One directory, of the library that is there."""
    box.configure(box.chip(cache="{cache}"))
    box.told()
    before = list((box.folder / "state" / "compiled").glob("*/sealed.json"))
    os.utime(box.library)
    box.told()
    after = list((box.folder / "state" / "compiled").glob("*/sealed.json"))
    assert (len(before), len(after)) == (1, 1)
    assert before != after


def test_another_library_under_the_same_link_is_noticed(box: Box) -> None:
    """As packages put a new version in place: the old file stays, the link leads elsewhere."""
    link, newer = box.folder / "liblink.so", box.folder / "libchip.so.2"
    shutil.copy(box.library, newer)
    link.symlink_to(box.library)
    box.configure(box.chip(link))
    box.told()
    link.unlink()
    link.symlink_to(newer)
    assert not the_chip(box.told())["kept"]


def test_another_library_under_the_same_bare_name_is_noticed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's search path leads elsewhere: by a link that was changed, by a folder that comes first."""
    first, second = box.folder / "first", box.folder / "second"
    for folder in (first, second):
        folder.mkdir()
        shutil.copy(box.library, folder / "libbare.so.1.0")
        shutil.copy(box.library, folder / "libbare.so.1.1")
        (folder / "libbare.so.1").symlink_to("libbare.so.1.0")
    box.configure(box.chip(Path("libbare.so.1")))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(first))
    kept = [the_chip(box.told())["kept"] for _ in range(2)]
    (first / "libbare.so.1").unlink()
    (first / "libbare.so.1").symlink_to("libbare.so.1.1")
    kept += [the_chip(box.told())["kept"] for _ in range(2)]
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{second}:{first}")
    kept += [the_chip(box.told())["kept"] for _ in range(2)]
    assert kept == [False, True] * 3
    assert box.children() == []


def test_one_that_is_slow_and_right_is_not_called_hung(box: Box) -> None:
    """All golden samples would take longer than it has: as many are run as there is time for, and the CPU runs all."""
    inputs = np.random.default_rng(4).uniform(-2, 2, (60, 1, delegates.SIZE)).astype(np.float32)
    outputs = np.stack([delegates.adder_expected(one) for one in inputs])
    samples = Golden({"x": inputs}, {"y": outputs}, {"y": outputs}, {"y": 1e-5})
    loaded = bundle.read(box.folder / "adder")
    model = (loaded.path / bundle.MODEL).read_bytes()
    bundle.write(box.folder / "many", loaded.manifest, {bundle.MODEL: model, bundle.GOLDEN: samples.to_bytes()})
    path = box.configure([box.chip(slow_ms=100), "cpu"], "many")
    path.write_text(path.read_text().replace('"candidate_s": 5', '"candidate_s": 1.5'))
    model_told = box.told()
    row = the_chip(model_told)
    assert (row["verdict"], 0 < row["checked"] < 60) == ("slower", True), row
    assert next(one["checked"] for one in model_told["candidates"] if one["delegate"] == "cpu") == 60


def conv_bundle(path: Path) -> Bundle:
    """int8 3x3 convolution, 32x32x16 to 32 channels: the model of which XNNPACK's int8 kernels make the most."""
    part, schema = tflitefiles.part, tflitefiles.schema()
    types, rng = schema.TensorType, np.random.default_rng(7)

    def tensor(name: str, kind: int, shape: list[int], at: int, scale: float, zero: int = 0) -> Any:
        quantization = part("QuantizationParameters", scale=[scale], zeroPoint=[zero])
        return part("Tensor", name=name, type=kind, shape=shape, buffer=at, quantization=quantization)

    weights = rng.integers(-127, 128, (32, 3, 3, 16), dtype=np.int8)
    bias = rng.integers(-1000, 1000, 32, dtype=np.int32)
    tensors = [
        tensor("x", types.INT8, [1, 32, 32, 16], 0, 0.05, 3),
        tensor("w", types.INT8, [32, 3, 3, 16], 1, 0.01),
        tensor("b", types.INT32, [32], 2, 0.0005),
        tensor("y", types.INT8, [1, 30, 30, 32], 0, 0.5, -2),
    ]
    options = part("Conv2DOptions", padding=schema.Padding.VALID, strideW=1, strideH=1)
    options.dilationWFactor = options.dilationHFactor = 1
    kind = schema.BuiltinOptions.Conv2DOptions
    op = part("Operator", opcodeIndex=0, inputs=[0, 1, 2], outputs=[3], builtinOptionsType=kind, builtinOptions=options)
    model = tflitefiles.packed(
        operatorCodes=[tflitefiles.code(schema.BuiltinOperator.CONV_2D, version=3)],
        subgraphs=[tflitefiles.graph(tensors, [op], [0], [3])],
        buffers=[tflitefiles.buffer(), tflitefiles.buffer(weights.tobytes()), tflitefiles.buffer(bias.tobytes())],
        signatureDefs=[tflitefiles.signature("serving_default", {"x": 0}, {"y": 3})],
    )
    x = rng.integers(-128, 128, (2, 1, 32, 32, 16), dtype=np.int8)
    y = np.stack([_convolved(sample, weights, bias) for sample in x])
    quantized: dict[str, Any] = {"io": "quantized"}
    ins = (tinymodel.spec("x", (1, 32, 32, 16), "int8", scale=0.05, zero_point=3, **quantized),)
    outs = (tinymodel.spec("y", (1, 30, 30, 32), "int8", scale=0.5, zero_point=-2, **quantized),)
    files = {bundle.MODEL: model, bundle.GOLDEN: Golden({"x": x}, {"y": y}, {"y": y}, {"y": 1.0}).to_bytes()}
    manifest = dataclasses.replace(Manifest(1, "conv", 1, {}, "serving_default", ins, outs), quantize="int8")
    bundle.write(path, manifest, files)
    return bundle.read(path)


def _convolved(x: Any, weights: Any, bias: Any) -> Any:
    """The convolution in int64, rounded at the end."""
    real = x.astype(np.int64)[0] - 3
    windows = np.lib.stride_tricks.sliding_window_view(real, (3, 3), axis=(0, 1))  # 30, 30, 16, 3, 3
    sums = np.einsum("abcij,oijc->abo", windows, weights.astype(np.int64)) + bias
    return np.clip(np.rint(sums * (0.05 * 0.01 / 0.5)) - 2, -128, 127).astype(np.int8)[None]


def test_both_runtimes_stand_in_one_table(tmp_path: Path) -> None:
    """On this CPU the table shows why LiteRT wins with int8: XNNPACK takes the convolution there, and not elsewhere."""
    for name in (LITERT, TFLITE_RUNTIME):
        tinymodel.require_runtime(name)
    conv_bundle(tmp_path / "conv")
    model = {"name": "m", "bundle": "conv", "realtime": "off"}
    body = {"device": "box", "broker": {"url": "mqtt://x"}, "state_dir": "state", "models": [model]}
    (tmp_path / "edged.yaml").write_text(json.dumps(body))
    done = edged("delegates", "-c", tmp_path / "edged.yaml", "--json")
    (told,) = json.loads(done.stdout)["models"]
    rows = {row["runtime"]: row for row in told["candidates"] if row["delegate"] == "cpu"}
    assert (rows[LITERT]["nodes_taken"], rows[LITERT]["nodes_total"]) == (1, 1)
    assert (rows[TFLITE_RUNTIME]["nodes_taken"], rows[TFLITE_RUNTIME]["nodes_total"]) == (0, 1)
    assert rows[LITERT]["p50_us"] < rows[TFLITE_RUNTIME]["p50_us"]
    assert told["chosen"]["runtime"] == LITERT
    table = edged("delegates", "-c", tmp_path / "edged.yaml").stdout
    assert [line.split()[0] for line in table.splitlines() if LITERT in line] == ["*"]
    assert f"remembered in {tmp_path / 'state' / 'selections.json'}" in table


@pytest.mark.parametrize("alone", [LITERT, TFLITE_RUNTIME])
def test_one_runtime_alone_is_enough(alone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is not installed, as far as this process and its children can see."""
    tinymodel.require_runtime(alone)
    conv_bundle(tmp_path / "conv")
    other = next(runtime.package for runtime in tflite_runtime.RUNTIMES if runtime.name != alone)
    (tmp_path / "hidden").mkdir()
    hide = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *a: None if name == {other!r} else find(name, *a)\n"
        f"sys.modules[{other!r}] = None\n"
    )
    (tmp_path / "hidden" / "sitecustomize.py").write_text(hide)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"), prepend=os.pathsep)
    model = {"name": "m", "bundle": "conv", "realtime": "off"}
    body = {"device": "box", "broker": {"url": "mqtt://x"}, "state_dir": "state", "models": [model]}
    (tmp_path / "edged.yaml").write_text(json.dumps(body))
    done = edged("delegates", "-c", tmp_path / "edged.yaml", "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["models"]
    assert {row["runtime"] for row in told["candidates"]} == {alone}
    assert told["chosen"]["runtime"] == alone


def test_nothing_that_can_serve_is_exit_69_with_the_table(tmp_path: Path) -> None:
    """The reasons of all stand in the table all the same."""
    tinymodel.write_dense_bundle(tmp_path / "dense", wrong_golden=True)
    body = {"device": "box", "broker": {"url": "mqtt://x"}, "state_dir": "state"}
    (tmp_path / "edged.yaml").write_text(json.dumps({**body, "models": [{"name": "m", "bundle": "dense"}]}))
    done = edged("delegates", "-c", tmp_path / "edged.yaml")
    assert done.returncode == 69
    assert ": golden sample 0, output 'y': off by 1" in done.stdout
    assert "NOT AS ASKED FOR: nothing serves" in done.stdout


def test_mistakes_are_told_before_anything_is_measured(box: Box) -> None:
    """An unknown delegate is the configuration's, an unknown model the command line's."""
    path = box.configure(["edgetpo"])
    for command in ("check", "delegates"):
        done = edged(command, "-c", path)
        assert (done.returncode, "did you mean 'edgetpu'" in done.stderr) == (78, True)
    assert not (box.folder / "state").exists()
    box.configure(["cpu"])
    done = edged("delegates", "-c", path, "--model", "n")
    assert (done.returncode, "no model is called 'n'" in done.stderr) == (2, True)


def test_options_of_any_length_are_measured(box: Box) -> None:
    """Longer than an argument of a process may be: the library hears them, and it is the one that says no."""
    box.configure([box.chip(log="x" * 200_000), "cpu"])
    row = the_chip(box.told())
    assert row["verdict"] == "failed"
    assert "testdelegate: unknown option log=xxxx" in row["reason"]


def test_a_full_standard_error_costs_no_result(box: Box) -> None:
    """The lines of -v cannot be written: the result comes all the same."""
    path = box.configure(["cpu"])
    command = [sys.executable, "-m", "edged", "delegates", "-c", str(path), "--json", "-v"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["models"][0]["chosen"]["delegate"] == "cpu"


def test_a_hang_up_that_is_to_be_ignored_is(box: Box) -> None:
    """Under nohup the run goes on when the terminal goes away."""
    path = box.configure(["cpu"])
    command = ["sh", "-c", 'trap "" HUP; exec "$0" "$@"', sys.executable, "-c", NOHUP, "delegates", "-c", str(path)]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60, check=False).returncode == 0


NOHUP = """
import os, signal, sys
from edged import assembly, cli
reading = assembly.read_bundles
def hung_up(config):
    os.kill(os.getpid(), signal.SIGHUP)
    return reading(config)
assembly.read_bundles = hung_up
sys.exit(cli.main())
"""
