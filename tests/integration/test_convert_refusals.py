"""What the TensorFlow child refuses, all in one start of TensorFlow: models and data that a person must mend."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from support import savedmodels

from converters.options import Options

pytestmark = pytest.mark.tf

# case → (SavedModel, options, error class, what the message must say)
CASES: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
    "several signatures": ("many", {}, "UsageError", ("inverse, open, text", "--signature")),
    "another signature": ("dense", {"signature": "serve_default"}, "UsageError", ("did you mean 'serving_default'",)),
    "no signature": ("nothing", {}, "BadDataError", ("has no signature",)),
    "other tag set": ("dense", {"tags": "serve,gpu"}, "UsageError", ("'gpu,serve'", "it has: serve", "--tags")),
    "text input": ("many", {"signature": "text"}, "BadDataError", ("input 'words' is of dtype string",)),
    "op that TFLite lacks": ("many", {"signature": "inverse"}, "BadDataError", ("MatrixInverse", "not in TFLite")),
    "open shape": ("many", {"signature": "open"}, "UsageError", ("'v'", "[?, ?, 3]", "--shape v=1,64,3")),
    "open shape given": ("many", {"signature": "open", "shapes": {"v": [1, 5, 3]}}, "", ()),
    "NaN sample": (
        "dense",
        {"quantize": "int8", "calibration": "nan.npz"},
        "BadDataError",
        ("nan.npz, input 'inputs'", "sample 37 holds NaN or Inf"),
    ),
    "Inf sample of a function": (
        "dense",
        {"quantize": "int8", "calibration": "endless:rows"},
        "BadDataError",
        ("endless:rows, input 'inputs'", "sample 3 holds NaN or Inf"),
    ),
    "missing function": (
        "dense",
        {"quantize": "int8", "calibration": "endless:nowhere"},
        "BadDataError",
        ("has no 'nowhere'",),
    ),
    "misspelt input": (
        "two",
        {"quantize": "int8", "calibration": "misspelt.npz"},
        "BadDataError",
        ("'zz' is no input of the model (did you mean 'z'?)",),
    ),
    "size decided by the data": (
        "edges",
        {"signature": "mask", "evaluation": "positive.npz"},
        "BadDataError",
        ("output 'o' has a shape that depends on the data: [4] for one input, [0] for another", "fixed size"),
    ),
    "number of boxes decided by the data": (
        "edges",
        {"signature": "boxes"},
        "BadDataError",
        ("output 'o' has a shape that depends on the data: [3] for one input, [1] for another",),
    ),
    "batch that only seems open": ("gru", {}, "", ()),
    "output without a value": (
        "edges",
        {"signature": "empty"},
        "BadDataError",
        ("output 'o' of shape [1, 0] holds no",),
    ),
    "random inputs that divide by zero": (
        "edges",
        {"signature": "divide"},
        "BadDataError",
        ("cannot be run on random inputs: Integer division by zero (give samples it can answer: --eval)",),
    ),
    "sample that divides by zero": (
        "edges",
        {"signature": "divide", "evaluation": "zero.npz"},
        "BadDataError",
        ("zero.npz: the SavedModel cannot be run on sample 2: Integer division by zero",),
    ),
    "input called self": ("named", {"signature": "own"}, "BadDataError", ("input named 'self' (rename it",)),
    "input with a space": ("named", {"signature": "odd"}, "BadDataError", ("input named 'a b' (rename it",)),
    "cut off weights": ("cut", {}, "BadDataError", ("cut: cannot be loaded",)),
    "nothing to quantize": (
        "edges",
        {"signature": "divide", "quantize": "int8", "calibration": "ints.npz"},
        "BadDataError",
        ("there is nothing to quantize",),
    ),
    "one sample to calibrate with": (
        "dense",
        {"quantize": "int8", "calibration": "one.npz"},
        "BadDataError",
        ("one.npz: holds a single sample: nothing to calibrate with",),
    ),
    "labels of another model": (
        "dense",
        {"evaluation": "labelled.npz"},
        "BadDataError",
        ("label 4 is no class of the model: it has 4, numbered from 0 to 3",),
    ),
    "wrong shape": (
        "dense",
        {"evaluation": "short.npz"},
        "BadDataError",
        ("has shape [100, 8], wanted [count, 1, 16] or [count, 16]",),
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Every case's (error class, message)."""
    models, folder = savedmodels.made(), tmp_path_factory.mktemp("refusals")
    x = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    np.savez(folder / "short.npz", inputs=x[:, :8])
    np.savez(folder / "one.npz", inputs=x[:1])
    np.savez(folder / "labelled.npz", inputs=x, y=np.arange(100) % 5)
    np.savez(folder / "positive.npz", v=np.abs(x[:, :4]) + 1)
    np.savez(folder / "ints.npz", v=np.arange(1, 401, dtype=np.int32).reshape(100, 4))
    np.savez(folder / "zero.npz", v=np.array([[1] * 4, [2] * 4, [3, 0, 1, 1]], np.int32))
    cut = folder / "cut"
    shutil.copytree(models / "dense", cut)
    os.truncate(next((cut / "variables").glob("variables.data-*")), 0)
    x[37, 3] = np.nan
    np.savez(folder / "nan.npz", inputs=x)
    np.savez(folder / "misspelt.npz", zz=x[:, 0], a=x[:, 0])
    (folder / "endless.py").write_text(
        "import itertools, numpy as np\n"
        "def rows():\n"
        "    for i in itertools.count():\n"
        "        yield np.full(16, np.inf if i == 3 else i, np.float32)\n"
    )
    jobs = []
    for model, given, _, _ in CASES.values():
        options = asdict(Options(models / model, folder / "out", "m", 1)) | given
        options |= {"model": str(folder / model if model == "cut" else models / model), "output": str(folder / "out")}
        jobs.append({"options": options, "cwd": str(folder), "image": None})
    return dict(zip(CASES, savedmodels.refusals(jobs, folder), strict=True))


@pytest.mark.parametrize("case", list(CASES))
def test_refused_with_a_line_that_helps(case: str, outcomes: dict[str, tuple[str, str]]) -> None:
    """Each mistake ends in its own error class, and its line names what is there or what to give."""
    _, _, name, says = CASES[case]
    found, text = outcomes[case]
    assert found == name, text
    for part in says:
        assert part in text
