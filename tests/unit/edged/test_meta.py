"""The `meta` property: what the daemon writes is what the client reads, and nothing a network sends breaks it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.meta import Meta, OutputMeta, format_meta, parse_meta

EXAMPLE = "v=3;path=local;delegate=cpu;q=120;i=450;o=probabilities:float32:1x6,embedding:int8:1x64"


def test_documented_text():
    """The text is the one of the documentation, both ways."""
    outputs = (OutputMeta("probabilities", "float32", (1, 6)), OutputMeta("embedding", "int8", (1, 64)))
    meta = Meta(3, "local", "cpu", 120, 450, outputs)
    assert format_meta(meta) == EXAMPLE
    assert parse_meta(EXAMPLE) == meta


def test_only_what_is_known_is_written():
    """Absent facts take no bytes, and 0 is a fact."""
    assert format_meta(Meta()) == ""
    assert format_meta(Meta(version=0, queue_us=0)) == "v=0;q=0"


def test_scalar_has_empty_shape():
    """A scalar output is written with no size and read as one element."""
    meta = parse_meta("o=score:float32:")
    assert meta.outputs == (OutputMeta("score", "float32", ()),)
    assert meta.outputs[0].elements == 1


@pytest.mark.parametrize("name", ["a:b", "a,b", "a;b=c", "größe 100 %", "x" * 50, "a/b+#"])
def test_names_are_escaped(name):
    """No name can break out of its place, and the text stays ASCII."""
    text = format_meta(Meta(delegate=name, outputs=(OutputMeta(name, "int8", (2,)),)))
    assert text.isascii()
    assert parse_meta(text).delegate == name
    assert parse_meta(text).outputs[0].name == name


def test_unknown_keys_and_order_do_not_matter():
    """A later daemon may add keys and change the order."""
    assert parse_meta("new=1;i=7;v=2;more") == Meta(version=2, infer_us=7)


def test_first_of_a_repeated_key_counts():
    """What is appended to a text cannot replace what stands there."""
    assert parse_meta("v=1;v=2").version == 1


@pytest.mark.parametrize("text", ["v=-1", "v=1.5", "v=", "v=٣", f"v={'9' * 400}", "q=1e3"])
def test_bad_numbers_count_as_not_given(text):
    """Only plain digits of a sane length are numbers."""
    assert parse_meta(text) == Meta()


@pytest.mark.parametrize("text", ["o=a:int8", "o=a:int8:2,b", "o=a::2", "o=a:int8:2x", "o=a:int8:-1", "o=a:int8:2:3"])
def test_half_readable_outputs_count_as_none(text):
    """A payload must not be split by a list that was read in part."""
    assert parse_meta(text).outputs == ()


@given(st.text())
def test_parsing_never_raises(text):
    """Any text gives a Meta."""
    assert isinstance(parse_meta(text), Meta)


_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_numbers = st.none() | st.integers(0, 10**17)
_outputs = st.builds(
    OutputMeta, _words, st.sampled_from(["float32", "int8"]), st.lists(st.integers(0, 999), max_size=4).map(tuple)
)


@given(st.builds(Meta, _numbers, _words, _words, _numbers, _numbers, st.lists(_outputs, max_size=3).map(tuple)))
def test_round_trip(meta):
    """Every Meta survives being written and read."""
    assert parse_meta(format_meta(meta)) == meta
