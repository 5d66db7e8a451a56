"""The table of codecs: what is there, what a Content Type picks, and what is said of a codec that is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edged import codecs
from edged.errors import Code, RequestError


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        (None, "raw"),
        ("", "raw"),
        ("application/octet-stream", "raw"),
        ("application/json", "json"),
        ("application/json; charset=utf-8", "json"),
        ("  Application/JSON ;charset=UTF-8", "json"),
        ("IMAGE/JPEG", "jpeg"),
        ("image/png", "png"),
        ("application/x-npy", "npy"),
        ("application/cbor", "cbor"),
        ("; charset=utf-8", "raw"),
        ("text/plain", None),
        ("application/json+x", None),
        ("json", None),
    ],
)
def test_a_content_type_picks_its_codec(content_type: str | None, name: str | None) -> None:
    """Case and parameters do not matter, nothing means raw, and an unknown type picks nothing."""
    assert codecs.name_for_content_type(content_type) == name


@pytest.mark.parametrize("name", ["xml", "", "RAW", "x" * 100_000])
def test_an_unknown_codec_names_those_there_are(name: str) -> None:
    """A requester's typing error (the 3.1.1 topic names the codec) is answered shortly, with the choices."""
    with pytest.raises(RequestError) as caught:
        codecs.load(name)
    assert caught.value.code is Code.UNIMPLEMENTED
    assert all(known in caught.value.message for known in codecs.NAMES)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(("name", "package"), [("cbor", "cbor2"), ("jpeg", "PIL"), ("png", "PIL")])
def test_a_missing_package_names_the_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package a codec is UNIMPLEMENTED and says what to install; afterwards it works again."""
    extra = codecs.TABLE[name].extra
    codecs.load.cache_clear()
    monkeypatch.delitem(sys.modules, codecs.TABLE[name].target.partition(":")[0], raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RequestError) as caught:
        codecs.load(name)
    assert caught.value.code is Code.UNIMPLEMENTED
    assert f"edged[{extra}]" in caught.value.message
    monkeypatch.undo()
    assert codecs.load(name).name == name


def test_a_broken_module_of_ours_is_no_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError in a codec that needs no extra is a fault of ours, and is not answered as `not installed`."""
    monkeypatch.setitem(codecs.TABLE, "odd", codecs.Row("edged.codecs.nothing_here:Odd", "x/odd"))
    with pytest.raises(ModuleNotFoundError):
        codecs.load("odd")


def test_nothing_optional_is_imported_before_it_is_asked_for() -> None:
    """A daemon that serves raw and JSON carries neither Pillow nor cbor2 nor simplejpeg."""
    code = (
        "import sys; from edged import codecs; codecs.load('raw'); codecs.load('json'); codecs.load('npy');"
        "print([m for m in ('PIL', 'cbor2', 'simplejpeg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
