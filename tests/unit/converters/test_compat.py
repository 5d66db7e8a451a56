"""Targets as a person names them, the judgement of op versions, and which switches cure what is missing."""

from __future__ import annotations

import pytest

from converters import compat
from converters.compat import CompatFlags
from edged.engines import op_versions
from edged.engines.op_versions import Missing
from edged.errors import UsageError

NEWEST = {name: op_versions.releases(name)[-1] for name in op_versions.RUNTIMES}
DENSE = Missing("FULLY_CONNECTED", 12, 10)
LOG = Missing("LOG", 2, 1)
PER_TENSOR = CompatFlags(per_tensor_dense=True)


def test_an_unknown_fleet_has_every_runtime_in_its_newest_release() -> None:
    """No target: both runtimes are judged, but nobody asked for them."""
    fleet = compat.targets(())
    assert [target.name for target in fleet] == [NEWEST[name] for name in op_versions.RUNTIMES]
    assert compat.runtimes(fleet) == ()
    assert compat.delegates(fleet) == ()


@pytest.mark.parametrize(
    ("text", "name", "judge"),
    [
        ("tflite-runtime", NEWEST["tflite-runtime"], NEWEST["tflite-runtime"]),
        ("tflite-runtime==2.13.0", "tflite-runtime 2.13.0", "tflite-runtime 2.13.0"),
        ("tflite-runtime 2.13", "tflite-runtime 2.13.0", "tflite-runtime 2.13.0"),
        (" ai-edge-litert == 2.1 ", "ai-edge-litert 2.1.0", "ai-edge-litert 2.1.0"),
        ("tflite-runtime 2.9.3", "tflite-runtime 2.9.3", "tflite-runtime 2.9.1"),
        ("tflite-runtime==2.99.0", "tflite-runtime 2.99.0", NEWEST["tflite-runtime"]),
    ],
)
def test_a_runtime_is_named_with_or_without_its_release(text: str, name: str, judge: str) -> None:
    """pip's form, a space, a shortened release; one that was not measured says who stands for it."""
    (target,) = compat.targets([text])
    assert (target.name, target.judge, target.runtime) == (name, judge, name.partition(" ")[0])
    assert target.note == ("" if name == judge else f"{name} was not measured: judged as {judge}")
    assert compat.runtimes([target]) == (target.runtime,)


def test_delegates_are_targets_beside_runtimes() -> None:
    """A delegate alone leaves the runtimes unknown; twice the same is once."""
    fleet = compat.targets(["edgetpu", "tflite-runtime 2.14", "tflite-runtime==2.14.0", "edgetpu", "gpu"])
    assert compat.delegates(fleet) == ("edgetpu", "gpu")
    assert compat.runtimes(fleet) == ("tflite-runtime",)
    alone = compat.targets(["xnnpack"])
    assert compat.runtimes(alone) == ()
    assert [j.target for j in compat.judge({"ADD": 1}, (), alone)] == [NEWEST[name] for name in op_versions.RUNTIMES]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tflite_runtime", "did you mean 'tflite-runtime'"),
        ("edge-tpu", r"did you mean 'edgetpu'.*known: ai-edge-litert, tflite-runtime, .*edgetpu"),
        ("tflite-runtime>=2.1", "is no runtime"),
        ("", "'' is no runtime"),
        ("edgetpu 16.0", "use edgetpu"),
        ("external", r"'external' has no table of its ops.*name the runtime of the device, ai-edge-litert or tflite"),
        ("cpu", "'cpu' takes every op.*name ai-edge-litert or tflite-runtime, or xnnpack"),
        ("ethos-u", "did you mean 'ethos_u'"),
        ("openvino", "did you mean 'npu_openvino'"),
        ("litert-gpu", "did you mean 'gpu'"),
        ("gpu-tflite", "did you mean 'gpu_tflite'"),
        ("tflite-runtime 2.5.0", "older than every release that was measured: 2.7.0"),
    ],
)
def test_a_wrong_target_is_a_mistake_of_the_command_line(text: str, says: str) -> None:
    """The error lists the names and guesses the one meant."""
    with pytest.raises(UsageError, match=says) as caught:
        compat.targets([text])
    assert caught.value.where == "--target"


def test_each_runtime_is_judged_by_itself() -> None:
    """The same file: fine for one runtime, refused by the other, with the op, what it needs and what is there."""
    ops = {"ADD": 1, "FULLY_CONNECTED": 12, "Mine": 1}
    fleet = compat.targets(["ai-edge-litert 2.3.0", "tflite-runtime 2.20"])
    litert, tflite = compat.judge(ops, (), fleet[:1]), compat.judge(ops, ["Mine"], fleet[1:])
    assert [str(m) for m in litert[0].missing] == ["Mine version 1 (has none)"]  # nobody said that it is a custom op
    assert not tflite[0].ok
    newest = NEWEST["tflite-runtime"]
    assert tflite[0].words == (
        "lacks FULLY_CONNECTED version 12 (has 1 to 10), custom op Mine; "
        f"tflite-runtime 2.20 was not measured: judged as {newest}"
    )
    (fine,) = compat.judge({"FULLY_CONNECTED": 12}, (), fleet[:1])
    assert (fine.ok, fine.missing, fine.how) == (True, (), "by table")


def test_a_cure_is_for_all_that_one_runtime_lacks() -> None:
    """Flags add up; something without a cure makes the retry pointless; nothing missing needs none."""
    assert compat.cures([DENSE]) == PER_TENSOR
    assert compat.cures([LOG, DENSE]) == CompatFlags(per_tensor_dense=True, float_ops=("LOG",))
    assert compat.cures([DENSE, Missing("STABLEHLO_CASE", 1, 0, 0)]) is None
    assert compat.cures([Missing("LOG", 1, 0, 0, custom=True)]) is None
    assert compat.cures([]) is None


def test_a_cure_holds_for_its_mode_and_its_versions() -> None:
    """int16x8 cannot leave ops float; a version that is not the measured one, or a runtime too old, is not cured."""
    assert compat.cures([LOG], "int8") == compat.cures([LOG], "mixed") == CompatFlags(float_ops=("LOG",))
    assert compat.cures([LOG], "int16x8") is None
    assert compat.cures([DENSE], "dynamic") == PER_TENSOR
    assert compat.cures([DENSE], "int8") is None
    assert compat.cures([Missing("FULLY_CONNECTED", 13, 10)]) is None
    assert compat.cures([Missing("FULLY_CONNECTED", 12, 8)]) is None
    assert compat.cures([Missing("GELU", 2, 0, 0)]) is None


def test_a_runtime_without_a_cure_does_not_stop_that_of_another() -> None:
    """Only flags that make some runtime load the file are on; a runtime that loads it already asks for none."""
    fleet = compat.targets(["tflite-runtime 2.14.0", "tflite-runtime 2.7.0", "ai-edge-litert 2.3.0"])
    judged = compat.judge({"FULLY_CONNECTED": 12, "GELU": 1}, (), fleet)
    assert [j.ok for j in judged] == [False, False, True]
    assert compat.cure(judged, "dynamic") == PER_TENSOR
    assert compat.cure(judged[1:], "dynamic") is None
    int8 = compat.judge({"LOG": 2, "EXP": 2}, (), compat.targets(["tflite-runtime 2.12.0"]))
    assert compat.cure(int8, "int8") == CompatFlags(float_ops=("EXP", "LOG"))


def test_flags_say_what_they_cost() -> None:
    """One sentence for each flag that is on; none by default."""
    assert CompatFlags().words() == ()
    both = CompatFlags(per_tensor_dense=True, float_ops=("EXP", "LOG")).words()
    assert len(both) == 3
    assert "one scale" in both[0]
    assert both[1].startswith("EXP")
