"""How samples are shared between calibration and comparison, and what a person is warned of."""

from __future__ import annotations

import numpy as np
import pytest

from converters import calibrate
from converters.samples import Array, InputInfo, Samples
from edged.errors import BadDataError

X = InputInfo("x", "float32", (1, 4))
RANDOM = np.random.default_rng(0).normal(size=(300, 1, 4)).astype(np.float32)


def samples(array: Array, source: str = "c.npz") -> Samples:
    return Samples(source, {"x": array})


def test_held_out_samples_calibrate_nothing() -> None:
    """Every fifth sample is held out, and no sample serves both sides."""
    samples = Samples("f", {"x": np.arange(23)[:, np.newaxis]}, np.arange(23))
    used, held = calibrate.hold_out(samples)
    assert held.arrays["x"].ravel().tolist() == [4, 9, 14, 19]
    assert sorted([*used.arrays["x"].ravel().tolist(), 4, 9, 14, 19]) == list(range(23))
    assert held.labels is not None
    assert held.labels.tolist() == [4, 9, 14, 19]


def test_too_few_samples_serve_both_sides() -> None:
    """Below ten nothing can be held out that would say anything."""
    samples = Samples("f", {"x": np.arange(9)[:, np.newaxis]})
    used, held = calibrate.hold_out(samples)
    assert used is held is samples


def test_random_samples_are_the_same_every_time_and_fit() -> None:
    """Seeded, in the inputs' dtypes; whole numbers stay in any table, pixels use their range."""
    inputs = (X, InputInfo("ids", "int32", (1, 3)), InputInfo("pixels", "uint8", (1, 8)))
    one, two = calibrate.random_samples(inputs), calibrate.random_samples(inputs)
    for info in inputs:
        np.testing.assert_array_equal(one.arrays[info.name], two.arrays[info.name])
        assert one.arrays[info.name].dtype == info.dtype
    assert set(np.unique(one.arrays["ids"])) == {0, 1}
    assert one.arrays["pixels"].max() > 200


def test_random_samples_are_known_by_what_they_are() -> None:
    """Not by a name, which a person's file may have too; those that are taken out of them are random still."""
    drawn = calibrate.random_samples((X,))
    assert drawn.random
    assert all(part.random for part in calibrate.hold_out(drawn))
    own = samples(RANDOM, drawn.source)
    assert not own.random
    assert not any(part.random for part in calibrate.hold_out(own))


def test_good_data_gives_no_warning() -> None:
    """A hundred different samples, and others to compare with: nothing to say."""
    assert calibrate.warnings(samples(RANDOM[:100]), samples(RANDOM[100:150], "e.npz"), calibrated=True) == []


def test_few_samples_are_a_warning_where_they_calibrate() -> None:
    """99 are too few for int8, and no matter for float16."""
    few, other = samples(RANDOM[:99]), samples(RANDOM[200:])
    assert calibrate.warnings(few, other, calibrated=True) == ["c.npz: only 99 samples; 100 or more calibrate well"]
    assert calibrate.warnings(few, other, calibrated=False) == []
    assert calibrate.warnings(None, other, calibrated=True) == []


def test_copies_are_not_samples() -> None:
    """300 samples of which 3 are different calibrate like 3."""
    found = calibrate.warnings(samples(np.tile(RANDOM[:3], (100, 1, 1))), samples(RANDOM[5:9]), calibrated=True)
    assert found == ["c.npz: only 3 of 300 samples are different"]


@pytest.mark.parametrize(
    ("compared", "says"),
    [
        (
            RANDOM[:100][::-1],
            "e.npz: every sample of it calibrated too: the quality is measured on the calibration data",
        ),
        (RANDOM[90:130], "e.npz: 10 of the 40 samples that are compared calibrated too"),
    ],
)
def test_evaluation_on_what_calibrated_is_told(compared: Array, says: str) -> None:
    """By content, not by file name: the same file under another name, in another order, or a part of it."""
    assert calibrate.warnings(samples(RANDOM[:100]), samples(compared, "e.npz"), calibrated=True) == [says]


def test_samples_are_told_apart_by_all_their_inputs() -> None:
    """Two samples with the same `a` and another `b` are different."""
    one = Samples("c", {"a": np.zeros((100, 1), np.float32), "b": RANDOM[:100]})
    two = Samples("e", {"a": np.zeros((9, 1), np.float32), "b": RANDOM[200:209]})
    assert calibrate.warnings(one, two, calibrated=True) == []


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (RANDOM[:1], "c.npz: holds a single sample"),
        (np.tile(RANDOM[:1], (120, 1, 1)), "c.npz: all 120 samples are the same"),
        (np.where(np.arange(120).reshape(120, 1, 1) % 2, 0.0, -0.0).astype(np.float32), "all 120 samples are the same"),
    ],
)
def test_what_teaches_no_range_is_refused(array: Array, says: str) -> None:
    """One sample, copies of one, and zeros of either sign; two different samples are a warning's matter."""
    with pytest.raises(BadDataError, match=says):
        calibrate.check(samples(array), calibrated=True)
    calibrate.check(samples(array), calibrated=False)
    calibrate.check(samples(RANDOM[:2]), calibrated=True)


def test_few_copies_get_one_note() -> None:
    """How many are different says it all; that the copies are few as well would contradict it."""
    found = calibrate.warnings(samples(np.tile(RANDOM[:2], (48, 1, 1))), samples(RANDOM[5:9]), calibrated=True)
    assert found == ["c.npz: only 2 of 96 samples are different"]


def test_random_samples_beyond_memory_are_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that a person asked for may be larger than the machine."""

    class Full:
        def standard_normal(self, *_: object, **__: object) -> Array:
            raise MemoryError

    monkeypatch.setattr(np.random, "default_rng", lambda _: Full())
    with pytest.raises(BadDataError, match=r"no memory for 32 samples, 1,024 bytes \(give a few samples: --eval"):
        calibrate.random_samples((X,))


def test_a_comparison_on_few_samples_is_told() -> None:
    """Every fifth of 40 are 8: one answer that flips is more than an eighth."""
    assert calibrate.compared(samples(RANDOM[:8])) == ["compared on only 8 samples of c.npz: give more with --eval"]
    assert calibrate.compared(samples(RANDOM[:20])) == []
