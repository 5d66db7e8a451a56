"""The NPU path, really run: LiteRT's compiler plugin and dispatch library of Intel, on OpenVINO's CPU device."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import accelerated, require, tinymodel, zoo
from support.accelerated import LITERT, measured

from edged import bundle, probing

pytestmark = [pytest.mark.openvino, pytest.mark.timeout(300)]

CPU = {"device": "CPU"}


# OpenVINO computes in bfloat16 where the CPU has it, whatever precision it is asked for through LiteRT. oneDNN, which
# does that, heeds this one, and then every machine computes alike.
FLOAT32 = ("ONEDNN_MAX_CPU_ISA", "AVX2")


@pytest.fixture(autouse=True)
def _openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    tinymodel.require_runtime(LITERT)
    require.packages("openvino")
    monkeypatch.setenv(*FLOAT32)


def test_the_probe_finds_openvino() -> None:
    """The plugins load with OpenVINO's libraries, which lie beside the package."""
    found = probing.probe("npu_openvino", CPU)
    assert (found.available, found.device) == (True, "cpu"), found


@pytest.mark.parametrize("mode", ["none", "int8"])
def test_a_trained_network_agrees(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A convolutional network trained on real digits, in float32 and quantized; the answer says whose it is."""
    loaded = bundle.read(zoo.convert("digits", mode).folder)
    row, cpu = measured(loaded, "npu_openvino", CPU), measured(loaded, "cpu")
    with capsys.disabled():
        print(f"\n    {loaded.manifest.name} {mode}: {accelerated.figures(row, cpu)}")
    assert (row.verdict, row.mapping, row.delegate) == ("agrees", "full", "npu_openvino:CPU"), row
    assert row.nodes_taken == row.nodes_total is not None


@pytest.mark.parametrize("name", ["LOG_SOFTMAX", "ELU"])
def test_a_part_is_told_as_a_part(tmp_path: Path, name: str) -> None:
    """OpenVINO's plugin takes neither. XNNPACK takes ELU: then the runtime says "fully accelerated", and it is not."""
    row = measured(accelerated.chain(tmp_path / "part", "DOUBLE", name), "npu_openvino", CPU)
    assert (row.verdict, row.mapping, row.nodes_taken, row.nodes_total) == ("agrees", "partial", 1, 2), row


@pytest.mark.parametrize("device", ["NPU", "GPU"])
def test_a_device_that_is_not_there_is_refused_and_never_the_cpu(tmp_path: Path, device: str) -> None:
    """By the probe, by name; and when it is opened all the same: with the CPU beside it, it would run there."""
    if not probing.probe("npu_openvino", {"device": device}).reason.startswith("no Intel"):
        pytest.skip(f"there is an Intel {device} here")
    row = measured(bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense")), "npu_openvino", {"device": device})
    assert row.verdict == "failed"
    assert "Cannot load library" in row.reason


def test_properties_reach_openvino(tmp_path: Path) -> None:
    """One that it knows changes nothing of the answers; one that it does not know is refused by its name."""
    loaded = bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))
    assert measured(loaded, "npu_openvino", {**CPU, "properties": {"NUM_STREAMS": "1"}}).verdict == "agrees"
    row = measured(loaded, "npu_openvino", {**CPU, "properties": {"NO_SUCH": "1"}})
    assert "NO_SUCH" in row.reason, row


def test_bfloat16_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU that has it the float network is computed in bfloat16, unasked: refused, with the number."""
    if "_bf16" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no bfloat16")
    monkeypatch.delenv(FLOAT32[0])
    row = measured(bundle.read(zoo.convert("digits", "none").folder), "npu_openvino", CPU)
    assert row.verdict == "refused", row
    assert "off by" in row.reason
    assert row.worst is not None
    assert row.worst > 1
