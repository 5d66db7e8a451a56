"""Sources of samples: files and functions, bound to the inputs, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from converters import sources
from converters.samples import InputInfo, Samples
from edged.errors import BadDataError, UsageError

X = InputInfo("x", "float32", (1, 4))
Y = InputInfo("y", "float32", (1, 2))
DATA = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


def load(source: str, folder: Path, *inputs: InputInfo, labels: bool = False) -> Samples:
    return sources.load(source, inputs, cwd=folder, image=None, labels=labels)


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
    (folder / "x.txt").write_text("1,2")
    with pytest.raises(UsageError, match=r"give \.npz, \.npy, \.csv, a directory of images or module:function"):
        load("x.txt", folder, X)


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


def function_in(folder: Path, text: str) -> str:
    """Write a module; return its `rows` as a source."""
    name = f"rows_{abs(hash(text))}"
    (folder / f"{name}.py").write_text(text)
    return f"{name}:rows"


HELPER = "import numpy as np\n"
MISTAKES = {
    "raise ValueError('first line\\nsecond')\n": ("raised ValueError: first line", 2),
    "def rows()\n    pass\n": ("raised SyntaxError: expected ':'", 2),
    "import rows_not_there\n": ("raised ModuleNotFoundError: No module named 'rows_not_there'", 2),
    "np.not_there\n": ("raised AttributeError: module 'numpy' has no attribute 'not_there'", 2),
    "import sys\nsys.exit(3)\n": ("raised SystemExit: 3", 3),
    "def rows():\n    return 1 / 0\n": ("raised ZeroDivisionError: division by zero", 3),
    "def rows(count):\n    yield count\n": ("raised TypeError: rows() missing 1 required positional argument", 0),
    "def rows():\n    yield np.zeros(4, 'f')\n    assert False\n": ("raised AssertionError", 4),
    "def rows():\n    yield np.zeros(4, 'f').reshape(3)\n": ("raised ValueError: cannot reshape array of size 4", 3),
    "def rows():\n    yield [[1.0], [1.0, 2.0]]\n": ("sample 0 is no array", 0),
    "def rows():\n    pass\n": ("returned None, not samples (yield one sample after the other)", 0),
    "def rows():\n    return {'x': np.zeros((9, 4), 'f')}\n": ("returned an object of type dict, not samples", 0),
    "rows = [np.zeros(4, 'f')]\n": ("is an object of type list, not a function", 0),
    "def other():\n    pass\n": ("has no 'rows'", 0),
}


@pytest.mark.parametrize("text", list(MISTAKES))
def test_a_mistake_in_a_function_is_one_line_with_its_place(folder: Path, text: str) -> None:
    """At the import, at the call or while it yields: the class, the first line of the reason, the file and its line."""
    says, line = MISTAKES[text]
    source = function_in(folder, HELPER + text)
    with pytest.raises(BadDataError) as found:
        load(source, folder, X)
    told = str(found.value)
    assert told.startswith(f"{source}: ")
    assert says in told
    assert "\n" not in told
    assert f"({source.partition(':')[0]}.py line {line})" in told if line else ".py line" not in told


def test_a_function_of_an_installed_package_is_told_by_its_own_line(folder: Path) -> None:
    """Nothing of the user's was running: the last line that was not ours."""
    (folder / "site-packages").mkdir()
    sys.path.insert(0, str(folder / "site-packages"))
    source = function_in(folder / "site-packages", "def rows():\n    raise KeyError\n")
    with pytest.raises(BadDataError, match=r"raised KeyError \(site-packages/rows_\d+\.py line 2\)"):
        load(source, folder, X)


def test_a_module_that_is_not_there_says_where_was_looked(folder: Path) -> None:
    """Of a module in a package too."""
    for source in ("rows_nowhere:rows", "rows_nowhere.inner:rows"):
        with pytest.raises(BadDataError, match=r"cannot be imported: No module named 'rows_nowhere.*\(looked in"):
            load(source, folder, X)


def test_a_function_may_print(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Text, bytes and a flush on both streams: the samples are the same, and a child's answer is no part of these."""
    told = "    sys.stdout.write('{}'); sys.stdout.flush(); sys.stderr.write('no')\n"
    body = f"def rows():\n{told}    yield np.float32([1, 2, 3, 4])\n{told}"
    samples = load(function_in(folder, f"import sys\n{HELPER}{body}"), folder, X)
    assert samples.arrays["x"].ravel().tolist() == [1, 2, 3, 4]
    assert capfd.readouterr() == ("{}{}", "nono")


def test_an_endless_function_ends(folder: Path) -> None:
    """At most `MOST` samples are drawn, and that is said."""
    (folder / "rows_endless.py").write_text(
        "import itertools, numpy as np\ndef rows():\n    return (np.float32([i] * 4) for i in itertools.count())\n"
    )
    samples = load("rows_endless:rows", folder, X)
    assert samples.count == sources.MOST
    assert f"only the first {sources.MOST}" in samples.notes[-1]


def test_a_csv_and_a_npz_of_the_same_values_are_the_same_samples(folder: Path) -> None:
    """The suffix alone decides how a file is read; labels are the same from both."""
    np.savez(folder / "e.npz", x=DATA, label=np.arange(10))
    header = "a,b,c,d,label"
    rows = [",".join([*(f"{value!r}" for value in row.tolist()), str(i)]) for i, row in enumerate(DATA)]
    (folder / "e.csv").write_text("\n".join([header, *rows]))
    npz, csv = load("e.npz", folder, X, labels=True), load("e.csv", folder, X, labels=True)
    np.testing.assert_array_equal(csv.arrays["x"], npz.arrays["x"])
    np.testing.assert_array_equal(csv.labels, npz.labels)


def test_what_hardly_varies_is_told_with_every_source(folder: Path) -> None:
    """The notes of a loaded source hold the constant channel, whatever kind of source it is."""
    np.save(folder / "x.npy", np.where(np.arange(4) == 2, 7, DATA).astype(np.float32))
    assert [n for n in load("x.npy", folder, X).notes if "channel 2 of 4 is constant (7)" in n]


def test_a_function_may_yield_labels(folder: Path) -> None:
    """`y` beside the inputs is the labels of --eval; in --calibration it is not used, and that is said."""
    (folder / "rows_y.py").write_text(
        "import numpy as np\n"
        "def rows():\n"
        "    for i in range(3):\n"
        "        yield {'x': np.full((1, 4), i, 'f4'), 'y': i, 'label': 0}\n"
    )
    found = load("rows_y:rows", folder, X, labels=True)
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 2]
    assert found.notes == ("rows_y:rows: 'label' is not used",)
    calibration = load("rows_y:rows", folder, X)
    assert calibration.labels is None
    assert calibration.notes == ("rows_y:rows: 'y' is not used", "rows_y:rows: 'label' is not used")
    np.testing.assert_array_equal(calibration.arrays["x"][:, 0, 0], [0, 1, 2])


@pytest.mark.parametrize(
    ("source", "advice"),
    [(":f", "module:function"), ("..gens:f", "gens:f"), ("./gens.py:f", "gens:f"), ("gens:", "module:function")],
)
def test_what_names_no_function(folder: Path, source: str, advice: str) -> None:
    """A path or half a name gets the form that is wanted."""
    with pytest.raises(
        BadDataError, match=rf"names no function of a module \(like {advice}, with the module's file in"
    ):
        load(source, folder, X)
