"""The .npz reader: what numpy writes is read, and anything else is one ValueError."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.npzread import arrays

MOST = 1 << 20
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(*, compressed: bool = False) -> bytes:
    out = io.BytesIO()
    write: Callable[..., None] = np.savez_compressed if compressed else np.savez
    write(out, **{"a/b": ROWS, "y": np.array(["sit", "é"]), "f": np.asfortranarray(ROWS)})
    return out.getvalue()


def zipped(content: bytes, name: str = "x.npy", method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, content)
    return out.getvalue()


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = ROWS) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def damaged(content: bytes) -> bytes:
    """A deflated stream with a block of a type that there is not."""
    archive = bytearray(zipped(content, method=zipfile.ZIP_DEFLATED))
    archive[30 + len("x.npy")] = 0xFF
    return bytes(archive)


def encrypted(archive: bytes) -> bytes:
    """The flag alone makes zipfile ask for a password."""
    changed = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        changed[archive.index(mark) + place] |= 1
    return bytes(changed)


def method(archive: bytes, number: int) -> bytes:
    changed = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        changed[archive.index(mark) + place] = number
    return bytes(changed)


@pytest.mark.parametrize("compressed", [False, True])
def test_what_numpy_writes_is_read(compressed: bool) -> None:
    """Names with slashes, text and Fortran order, stored or deflated, as np.load reads them."""
    found = arrays(io.BytesIO(saved(compressed=compressed)), MOST)
    with np.load(io.BytesIO(saved())) as expected:
        assert sorted(found) == sorted(expected.files)
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])


TWICE = io.BytesIO()
with zipfile.ZipFile(TWICE, "w") as _archive:
    _archive.writestr("x.npy", npy())
    with pytest.warns(UserWarning, match="Duplicate"):
        _archive.writestr("x.npy", npy())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a zip file"),
        (npy(), "not a zip file"),
        (damaged(npy()), "Error -3"),
        (zipped(b"hello", "x.txt"), "'x.txt' in it is no array"),
        (zipped(npy().replace(b"(2, 3), }", b"(%d,),}" % 10**12)), "bytes after the header"),
        (zipped(npy().replace(b"(2, 3), }", b"(2, 3      ")), "not the .npy header"),
        (zipped(npy().replace(b"<f4", b"|O ")), "not the .npy header"),
        (zipped(npy() + b"1"), "1 bytes too many"),
        (zipped(b""), "not a .npy stream"),
        (encrypted(zipped(npy())), "is encrypted"),
        (method(zipped(npy()), 99), "a method that numpy does not use"),
        (zipped(npy(), method=zipfile.ZIP_LZMA), "a method that numpy does not use"),
        (zipped(npy(np.zeros(MOST)), method=zipfile.ZIP_DEFLATED), "unpacks to"),
        (TWICE.getvalue(), "is in it twice"),
    ],
)
def test_anything_else_is_one_line(content: bytes, says: str) -> None:
    """A .npy with another name, damage, encryption, bombs, headers that promise or never end."""
    with pytest.raises(ValueError, match=says) as caught:
        arrays(io.BytesIO(content), MOST)
    assert "\n" not in str(caught.value)


@given(st.data())
def test_no_damage_raises_anything_else(data: st.DataObject) -> None:
    """Bytes changed, cut or put in anywhere: the arrays, or a ValueError."""
    content = bytearray(saved(compressed=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, max(0, len(content) - 1)))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        arrays(io.BytesIO(bytes(content)), MOST)
    except ValueError as exc:
        assert str(exc)  # noqa: PT017  # what is raised is what is tested
