"""Sources of samples, and how they are shared between calibration and comparison."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from converters import calibrate
from converters.samples import InputInfo, Samples
from edged.bundle import ImagePreprocess
from edged.errors import BadDataError, UsageError

X = InputInfo("x", "float32", (1, 4))
Y = InputInfo("y", "float32", (1, 2))
IMAGE = InputInfo("image", "float32", (1, 4, 6, 3))
DATA = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


def load(source: str, folder: Path, *inputs: InputInfo, labels: bool = False) -> Samples:
    return calibrate.load(source, inputs, cwd=folder, image=None, labels=labels)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory; the path and the imports of the test process are restored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("rows_"):
            del sys.modules[name]


def test_an_array_serves_a_model_with_one_input(folder: Path) -> None:
    """.npy binds to the only input; with two inputs it is refused, and the right form named."""
    np.save(folder / "x.npy", DATA)
    np.testing.assert_array_equal(load("x.npy", folder, X).arrays["x"][:, 0], DATA)
    with pytest.raises(BadDataError, match=r"one array for 2 inputs \(give a \.npz with the arrays x, y\)"):
        load("x.npy", folder, X, Y)


def test_labels_are_no_input_unless_the_model_says_so(folder: Path) -> None:
    """Key `y` is the labels of --eval, unused in --calibration, an input where the model has one."""
    np.savez(folder / "e.npz", x=DATA, y=np.arange(10))
    samples = load("e.npz", folder, X, labels=True)
    assert samples.labels is not None
    assert samples.labels.tolist() == list(range(10))
    calibration = load("e.npz", folder, X)
    assert (calibration.labels, calibration.notes) == (None, ("e.npz: 'y' is not used",))
    np.savez(folder / "two.npz", x=DATA, y=DATA[:, :2])
    two = load("two.npz", folder, X, Y, labels=True)
    assert two.labels is None
    assert set(two.arrays) == {"x", "y"}


@pytest.mark.parametrize("labels", [True, False])
def test_the_only_array_is_for_the_only_input_and_that_is_said(folder: Path, *, labels: bool) -> None:
    """Whatever its name, with labels beside it or without; a person learns what was bound."""
    np.savez(folder / "e.npz", x_train=DATA, y=np.arange(10))
    samples = load("e.npz", folder, X, labels=labels)
    np.testing.assert_array_equal(samples.arrays["x"][:, 0], DATA)
    assert "e.npz: 'x_train' is taken for the only input, 'x'" in samples.notes
    assert (samples.labels is not None) == labels


def test_two_arrays_and_no_name_are_no_guess(folder: Path) -> None:
    """One input and two arrays of other names, only labels, or two inputs: names decide, or it is refused."""
    np.savez(folder / "two.npz", a=DATA, b=DATA)
    with pytest.raises(BadDataError, match="'a' is no input of the model"):
        load("two.npz", folder, X, labels=True)
    np.savez(folder / "labels.npz", labels=DATA)
    with pytest.raises(BadDataError, match="'labels' is no input of the model"):
        load("labels.npz", folder, X)
    np.savez(folder / "one.npz", a=DATA)
    with pytest.raises(BadDataError, match="'a' is no input of the model"):
        load("one.npz", folder, X, InputInfo("z", "float32", (1, 4)))


def test_two_arrays_of_labels_are_told(folder: Path) -> None:
    """The first of `y` and `labels` counts; the other is not dropped in silence."""
    np.savez(folder / "e.npz", x=DATA, labels=np.zeros(10, np.int64), y=np.arange(10))
    samples = load("e.npz", folder, X, labels=True)
    assert samples.labels is not None
    assert samples.labels.tolist() == list(range(10))
    assert samples.notes == ("e.npz: 'labels' is not used",)


@pytest.mark.parametrize("content", [b"", b"not numpy", b"PK\x03\x04broken"])
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_broken_file_is_one_line(folder: Path, name: str, content: bytes) -> None:
    """Damaged or foreign files are BadDataError, never numpy's own error."""
    (folder / name).write_bytes(content)
    with pytest.raises(BadDataError, match="cannot be read"):
        load(name, folder, X)


def test_pickled_objects_are_never_loaded(folder: Path) -> None:
    """An array of Python objects could run code when read: refused."""
    np.save(folder / "x.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadDataError, match="cannot be read"):
        load("x.npy", folder, X)


def test_sources_that_are_not_there_or_not_samples(folder: Path) -> None:
    """A missing path, and a file of another kind, each say what would do."""
    with pytest.raises(BadDataError, match="no such file or directory"):
        load("nowhere.npz", folder, X)
    (folder / "x.csv").write_text("1,2")
    with pytest.raises(UsageError, match=r"give \.npz, \.npy, a directory of images or module:function"):
        load("x.csv", folder, X)


@pytest.mark.parametrize(
    "body",
    [
        "yield from DATA",
        "yield from DATA[:, None]",
        "for row in DATA: yield {'x': row}",
        "for row in DATA: yield row.tolist() and row",
    ],
)
def test_a_function_may_yield_arrays_or_mappings(folder: Path, body: str) -> None:
    """With or without the batch, alone or by name: the same samples."""
    np.save(folder / "d.npy", DATA)
    name = f"rows_{abs(hash(body))}"
    (folder / f"{name}.py").write_text(f"import numpy as np\nDATA = np.load('d.npy')\ndef rows():\n    {body}\n")
    samples = load(f"{name}:rows", folder, X)
    np.testing.assert_array_equal(samples.arrays["x"][:, 0], DATA)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return iter(())", "yields no sample"),
        ("yield np.zeros(4, 'f'); yield np.zeros(3, 'f')", "sample 1 has other names or shapes than sample 0"),
        ("yield {'z': np.zeros(4, 'f')}", "'z' is no input of the model"),
        ("yield np.zeros(5, 'f')", "has shape"),
    ],
)
def test_a_function_that_yields_something_else(folder: Path, body: str, says: str) -> None:
    """What a function yields is checked like a file."""
    name = f"rows_{abs(hash(body))}"
    (folder / f"{name}.py").write_text(f"import numpy as np\ndef rows():\n    {body}\n")
    with pytest.raises(BadDataError, match=says):
        load(f"{name}:rows", folder, X)


def test_an_endless_function_ends(folder: Path) -> None:
    """At most `MOST` samples are drawn, and that is said."""
    (folder / "rows_endless.py").write_text(
        "import itertools, numpy as np\ndef rows():\n    return (np.float32([i] * 4) for i in itertools.count())\n"
    )
    samples = load("rows_endless:rows", folder, X)
    assert samples.count == calibrate.MOST
    assert f"only the first {calibrate.MOST}" in samples.notes[-1]


def test_images_become_the_input(folder: Path) -> None:
    """A directory of images: sorted, resized and scaled as --preprocess says; other files are left alone."""
    image = pytest.importorskip("PIL.Image")
    for i, name in enumerate(("b.png", "a.png")):
        image.fromarray(np.full((8, 12, 3), (10 + i, 20, 30), np.uint8)).save(folder / name)
    (folder / "note.txt").write_text("no image")
    spec = ImagePreprocess("image", width=6, height=4, scale=0.5, mean=(1.0, 2.0, 3.0))
    samples = calibrate.load(".", (IMAGE,), cwd=folder, image=spec)
    expected = np.array([[11, 20, 30], [10, 20, 30]], np.float32) * 0.5 - np.float32([1, 2, 3])
    np.testing.assert_allclose(samples.arrays["image"][:, 0, 2, 3], expected)
    with pytest.raises(UsageError, match="needs --preprocess"):
        load(".", folder, IMAGE)


def test_preprocessing_takes_its_size_from_the_model() -> None:
    """input, width and height come from the only image input; a size that contradicts it is refused."""
    made = calibrate.complete_image({"scale": 0.25}, (IMAGE, X), "p.yaml")
    assert (made.input, made.width, made.height, made.scale) == ("image", 6, 4, 0.25)
    nchw = InputInfo("image", "float32", (1, 3, 4, 6))
    assert calibrate.complete_image({"layout": "NCHW"}, (nchw,), "p").width == 6
    for raw, says in (({"width": 5}, "does not fit"), ({"channels": "GRAY"}, "does not fit"), ({"input": "x"}, "'x'")):
        with pytest.raises(BadDataError, match=says):
            calibrate.complete_image(raw, (IMAGE, X), "p.yaml")


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


def test_ranges_are_what_was_seen() -> None:
    """The smallest and the largest value of each input, by name."""
    found = calibrate.ranges(Samples("f", {"x": np.array([[1.0, -2.0], [3.0, 0.0]])}))
    assert [(r.input, r.minimum, r.maximum) for r in found] == [("x", -2.0, 3.0)]
