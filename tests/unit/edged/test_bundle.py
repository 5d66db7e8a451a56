"""Bundles: what is written is read back; what was changed, cut or added is refused by name."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel

from edged import bundle
from edged.errors import BadDataError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tinymodel.write_dense_bundle(tmp_path / "dense")


def test_reading_gives_what_was_written(path: Path) -> None:
    """Model bytes, specs and golden arrays survive."""
    read = bundle.read(path)
    assert read.model == tinymodel.dense_model()
    assert read.manifest.inputs[0] == tinymodel.spec("x", (1, 3))
    golden = read.golden()
    assert golden is not None
    np.testing.assert_array_equal(golden.reference["y"][0], [[4.625, -0.75]])  # by hand: W·(1,2,3) + b


def test_the_hashes_are_those_of_the_files(path: Path) -> None:
    """Independent source: hashlib over the file on disk."""
    manifest = json.loads((path / "bundle.json").read_text())
    for name, entry in manifest["files"].items():
        data = (path / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    """Directories and tars made twice are equal byte for byte."""
    one, two = (tinymodel.write_dense_bundle(tmp_path / f"{n}.tar") for n in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_a_tar_reads_like_its_directory(tmp_path: Path, path: Path) -> None:
    """Both forms hold the same."""
    tar = bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense.tar"))
    directory = bundle.read(path)
    assert tar.files == directory.files
    assert tar.manifest == directory.manifest


@pytest.mark.parametrize("change", ["flip", "cut", "grow", "remove"])
@pytest.mark.parametrize("name", [bundle.MODEL, bundle.GOLDEN])
def test_a_changed_file_is_refused_by_name(path: Path, name: str, change: str) -> None:
    """One flipped bit, one byte less, one more, or no file: each is refused before the model is used."""
    file = path / name
    data = file.read_bytes()
    if change == "remove":
        file.unlink()
    else:
        flipped = data[:20] + bytes([data[20] ^ 1]) + data[21:]
        file.write_bytes({"flip": flipped, "cut": data[:-1], "grow": data + b"x"}[change])
    with pytest.raises(BadDataError, match=name):
        bundle.read(path)


def edited(path: Path, change: dict[str, object]) -> Path:
    manifest = json.loads((path / "bundle.json").read_text())
    (path / "bundle.json").write_text(json.dumps(manifest | change))
    return path


def test_an_unknown_key_is_an_error_that_names_the_format(path: Path) -> None:
    """A newer writer's key is not dropped in silence."""
    with pytest.raises(BadDataError, match=r"flavour.*\n?.*format 1"):
        bundle.read(edited(path, {"flavour": 1}))


def test_ext_is_free(path: Path) -> None:
    """Others may keep what they like under `ext`."""
    assert bundle.read(edited(path, {"ext": {"acme": {"line": 3}}})).manifest.ext == {"acme": {"line": 3}}


@pytest.mark.parametrize("value", [2, "1", None])
def test_another_format_is_refused(path: Path, value: object) -> None:
    """Only format 1 is read, and the message says so."""
    with pytest.raises(BadDataError, match="this edged reads format 1"):
        bundle.read(edited(path, {"format": value}))


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "other.bin"])
def test_a_file_name_cannot_leave_the_bundle(path: Path, name: str) -> None:
    """Only the names of the format are taken."""
    entry = {"sha256": "0" * 64, "size": 1}
    files = json.loads((path / "bundle.json").read_text())["files"]
    with pytest.raises(BadDataError, match="unknown name"):
        bundle.read(edited(path, {"files": files | {name: entry}}))


def test_a_key_given_twice_is_refused(path: Path) -> None:
    """JSON lets the last one win; we do not."""
    text = (path / "bundle.json").read_text()
    (path / "bundle.json").write_text(text.replace('"format": 1,', '"format": 1, "format": 1,', 1))
    with pytest.raises(BadDataError, match="format"):
        bundle.read(path)


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\0" * 10240])
def test_a_file_that_is_no_tar_is_refused(tmp_path: Path, content: bytes) -> None:
    """Garbage instead of a .tar is one clear error."""
    file = tmp_path / "x.tar"
    file.write_bytes(content)
    with pytest.raises(BadDataError):
        bundle.read(file)


def test_links_in_a_tar_are_not_followed(tmp_path: Path) -> None:
    """A member that links to a file outside counts as missing."""
    file = tmp_path / "x.tar"
    with tarfile.open(file, "w") as tar:
        info = tarfile.TarInfo("bundle.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(info)
    with pytest.raises(BadDataError, match=r"no bundle\.json"):
        bundle.read(file)


def long_links(count: int) -> bytes:
    """GNU headers of a long name, each of which is about the next one."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5
    return (info.tobuf(tarfile.GNU_FORMAT) + b"aaaa\0".ljust(512, b"\0")) * count


def a_header_of(size: int) -> bytes:
    """A long name that is said to have `size` bytes, in a file that has them all as a hole."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("head", "size", "says"),
    [
        (long_links(3000), 0, "lead from one to the next without end"),
        (a_header_of(1 << 30), 1 << 31, "a header of 1073741824 bytes"),
        (tarfile.TarInfo("f").tobuf() * 1001, 0, "more than 1000 files"),
    ],
    ids=["chained", "huge", "many"],
)
def test_a_tar_that_means_harm_is_refused(tmp_path: Path, head: bytes, size: int, says: str) -> None:
    """Neither the stack nor the memory nor the patience of the reader is the writer's to spend."""
    file = tmp_path / "x.tar"
    file.write_bytes(head)
    with file.open("r+b") as opened:
        opened.truncate(max(size, len(head)))
    with pytest.raises(BadDataError, match=says):
        bundle.read(file)


def test_files_beside_the_listed_ones_are_named(tmp_path: Path, path: Path) -> None:
    """In a directory and in a .tar: the bundle is read without them."""
    (path / "extra.bin").write_bytes(b"x")
    assert bundle.read(path).unlisted == ("extra.bin",)
    file = tmp_path / "x.tar"
    with tarfile.open(file, "w") as tar:
        for name in sorted(each.name for each in path.iterdir()):
            tar.add(path / name, name)
    assert bundle.read(file).unlisted == ("extra.bin",)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2**53 + 1},
        {"version": 10**400},
        {"name": "\x1b[31mred"},
        {"name": "n" * 1001},
        {"signature": "a\nb"},
        {"files": {"model.tflite": {"sha256": "0" * 64, "size": 2**31 + 1}}},
        {"inputs": [{"name": "x", "dtype": "int8", "shape": [1, 3], "scale": 0.5, "zero_point": 2**31}]},
    ],
    ids=["version", "digits", "escape", "long", "signature", "size", "zero point"],
)
def test_values_that_no_reader_can_use_are_refused(path: Path, change: dict[str, object]) -> None:
    """Numbers beyond what JSON's readers agree on, and names that would move a cursor."""
    with pytest.raises(BadDataError, match=next(iter(change))):
        bundle.read(edited(path, change))


def test_a_version_that_every_reader_can_use(path: Path) -> None:
    """2 to the 53rd, as the largest one."""
    assert bundle.read(edited(path, {"version": 2**53})).manifest.version == 2**53


def test_writing_never_overwrites(path: Path) -> None:
    """An existing bundle stays as it is."""
    with pytest.raises(FileExistsError):
        tinymodel.write_dense_bundle(path)


def test_golden_that_is_no_npz_is_refused() -> None:
    """A pickle, a zip bomb's header or text: ValueError, nothing is run."""
    for data in (b"", b"PK\x03\x04", b"text", b"\x93NUMPY\x01\x00"):
        with pytest.raises(ValueError, match="golden"):
            bundle.Golden.from_bytes(data)


def npz(**arrays: object) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **{name.replace("__", "/"): value for name, value in arrays.items()})  # type: ignore[arg-type]
    return out.getvalue()


X, Y = np.zeros((2, 1, 3), np.float32), np.zeros((2, 1, 2), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"reference__y": Y, "tolerance__y": 0.1}, "no sample"),
        ({"input__x": X, "tolerance__y": 0.1}, "reference 'y' is missing"),
        ({"input__x": X, "reference__y": Y}, "tolerance of 'y' is None"),
        ({"input__x": X, "reference__y": Y, "tolerance__y": np.inf}, "tolerance of 'y' is inf"),
        ({"input__x": X, "reference__y": Y, "tolerance__y": -1.0}, "tolerance of 'y' is -1"),
        ({"input__x": X, "reference__y": Y[:1], "tolerance__y": 0.1}, "reference 'y' is float32"),
        ({"input__x": X[..., :1], "reference__y": Y, "tolerance__y": 0.1}, "input 'x' is float32"),
        ({"input__x": X.astype(np.float64), "reference__y": Y, "tolerance__y": 0.1}, "input 'x' is float64"),
        ({"input__x": X, "reference__y": Y, "tolerance__y": np.zeros(3)}, "cannot be read"),
    ],
)
def test_golden_samples_that_check_nothing_are_refused(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    """A bundle must not become `ready` on samples that only claim to vouch for it."""
    manifest = bundle.read(tinymodel.write_dense_bundle(tmp_path / "whole")).manifest
    bundle.write(tmp_path / "b", manifest, {bundle.MODEL: tinymodel.dense_model(), bundle.GOLDEN: npz(**arrays)})
    with pytest.raises(BadDataError, match=message):
        bundle.read(tmp_path / "b").golden()


def test_a_golden_bomb_is_not_unpacked() -> None:
    """300 kB that would become 300 MB: refused by the sizes the archive itself tells."""
    bomb = npz(input__x=np.zeros(300 << 20, np.uint8))
    assert len(bomb) < 1 << 20
    with pytest.raises(ValueError, match="unpacks to"):
        bundle.Golden.from_bytes(bomb)


def test_sizes_are_compared_before_anything_is_read(path: Path) -> None:
    """A sparse terabyte under the model's name is refused, not loaded."""
    with (path / bundle.MODEL).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadDataError, match=f"{1 << 40} bytes"):
        bundle.read(path)


def test_labels_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """At reading, not at the first answer."""
    manifest = bundle.read(tinymodel.write_dense_bundle(tmp_path / "whole")).manifest
    bundle.write(tmp_path / "b", manifest, {bundle.MODEL: tinymodel.dense_model(), bundle.LABELS: b"\xff\xfe"})
    with pytest.raises(BadDataError, match="utf-8"):
        bundle.read(tmp_path / "b")


@pytest.mark.parametrize("shape", [[10**30], [2**31, 2**31], [0], [-1, 3]])
def test_impossible_shapes_are_refused(path: Path, shape: list[int]) -> None:
    """Before anybody multiplies them."""
    inputs = [{"name": "x", "dtype": "float32", "shape": shape}]
    with pytest.raises(BadDataError, match="inputs"):
        bundle.read(edited(path, {"inputs": inputs}))


@pytest.mark.parametrize("inputs", [[], ["x", "x"]])
def test_no_input_or_one_twice_is_refused(path: Path, inputs: list[str]) -> None:
    """Both would leave a tensor that nobody fills."""
    specs = [{"name": name, "dtype": "float32", "shape": [1, 3]} for name in inputs]
    with pytest.raises(BadDataError, match="inputs"):
        bundle.read(edited(path, {"inputs": specs}))


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails in the middle: neither the bundle nor a part of it is there, and the next try succeeds."""
    original = Path.write_bytes

    def failing(self: Path, data: bytes) -> int:
        if self.name == bundle.GOLDEN:
            raise OSError(28, "No space left on device")
        return original(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", failing)
        with pytest.raises(OSError, match="No space"):
            tinymodel.write_dense_bundle(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
    bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"postprocess": {"output": "nope"}}, "no such output"),
        ({"preprocess": {"input": "nope", "width": 2, "height": 2}}, "no input is called 'nope'"),
        ({"preprocess": {"input": "x", "width": 2, "height": 2, "std": [0.0]}}, "must not be 0"),
        ({"preprocess": {"input": "x", "width": 2, "height": 2, "mean": [1.0, 2.0]}}, "expected 1 or 3 values"),
    ],
)
def test_what_does_not_go_together_is_refused(path: Path, change: dict[str, object], message: str) -> None:
    """Relations inside the manifest, told before a request would find them."""
    with pytest.raises(BadDataError, match=message):
        bundle.read(edited(path, change))
