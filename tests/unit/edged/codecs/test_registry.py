"""The table of codecs: what is there, what a Content Type picks, and what is said of a codec that is not there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.codec_cases import image_signature, signature_for

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
    """Without its package a codec is UNIMPLEMENTED and says what to install; with a new start it works again."""
    extra = codecs.TABLE[name].extra
    codecs._imported.cache_clear()
    monkeypatch.delitem(sys.modules, codecs.TABLE[name].target.partition(":")[0], raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RequestError) as caught:
        codecs.load(name)
    assert caught.value.code is Code.UNIMPLEMENTED
    assert f"edged[{extra}]" in caught.value.message
    monkeypatch.undo()
    codecs._imported.cache_clear()
    assert codecs.load(name).name == name


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The modules that the table imports, with an empty memory before and after."""
    asked: list[str] = []

    def import_module(name: str) -> Any:
        asked.append(name)
        return real(name)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", import_module)
    codecs._imported.cache_clear()
    yield asked
    codecs._imported.cache_clear()


def test_a_missing_package_is_looked_for_once(imports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing import searches every path; requests for the codec are answered alike and do not repeat it."""
    monkeypatch.delitem(sys.modules, "edged.codecs.cbor", raising=False)
    monkeypatch.setitem(sys.modules, "cbor2", None)
    messages, errors = set(), []
    for _ in range(3):
        with pytest.raises(RequestError) as caught:
            codecs.load("cbor")
        messages.add(caught.value.message)
        errors.append(caught.value)
    assert imports == ["edged.codecs.cbor"]
    assert len(messages) == 1
    assert len({id(error) for error in errors}) == 3  # one error raised again and again would grow its traceback


def test_unknown_names_are_not_remembered(imports: list[str]) -> None:
    """Requesters choose them, so that a memory of them would grow without end."""
    for i in range(100):
        with pytest.raises(RequestError):
            codecs.load(f"name{i}")
    assert codecs._imported.cache_info().currsize == 0
    assert imports == []


@pytest.mark.parametrize("image", [False, True])
def test_what_is_likely_is_loaded_before_the_first_request(image: bool, imports: list[str]) -> None:
    """Tensors and JSON, images where the bundle has preprocessing: such a request imports nothing any more."""
    codecs.preload(image_signature() if image else signature_for({"x": np.zeros((1, 3), np.float32)}))
    likely = [name for name in codecs.NAMES if name != "cbor" and (image or name not in ("jpeg", "png"))]
    assert sorted(imports) == sorted(codecs.TABLE[name].target.partition(":")[0] for name in likely)
    imports.clear()
    assert [codecs.load(name).name for name in likely] == likely
    assert imports == []


def test_preload_passes_over_what_is_not_installed(imports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra stops no start, and is known from then on."""
    monkeypatch.delitem(sys.modules, "edged.codecs.image", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    codecs.preload(image_signature())
    tried = imports.count("edged.codecs.image")
    assert tried
    with pytest.raises(RequestError, match="not installed"):
        codecs.load("jpeg")
    assert imports.count("edged.codecs.image") == tried


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
