"""YAML as a person reads it: the surprises gone, every problem with its line, nothing but ConfigError."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edged import yamlload
from edged.errors import ConfigError, ExitCode
from edged.yamlload import InvalidConfigError

LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@dataclass(frozen=True)
class Leaf:
    count: int = 1
    mode: Literal["on", "off", "auto"] = "auto"


@dataclass(frozen=True)
class Tree:
    leaf: Leaf = Leaf()
    leaves: tuple[Leaf, ...] = ()
    text: str = ""
    ratio: float = 1.0
    flag: bool = False
    free: Any = None
    named: Mapping[str, Leaf] = field(default_factory=dict)


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__, autouse=True)
def loader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs on libyaml's parser and on the one in Python, which boards without libyaml have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamlload, "_LOADER", request.param)
        yield


def lines(text: str) -> list[str]:
    """What `load` complains of."""
    with pytest.raises(ConfigError) as caught:
        yamlload.load(text, Tree, "f.yaml")
    assert caught.value.exit_code == ExitCode.CONFIG
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1e-3", 0.001), ("1E3", 1000.0), (".5", 0.5), ("-2.", -2.0), ("12", 12), ("-0", 0), ("+7", 7), ("0x1F", 31),
        ("true", True), ("False", False), ("~", None), ("null", None), ("", None),
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("No", "No"), ("y", "y"),
        ("0777", "0777"), ("0o17", "0o17"), ("007", "007"), ("12:30:00", "12:30:00"), ("1:30", "1:30"),
        ("1_000", "1_000"), ("2024-01-01", "2024-01-01"), ("1.2.3", "1.2.3"), ("3.1.1", "3.1.1"), ("=", "="),
        ("a b", "a b"), ("'12'", "12"), ('"true"', "true"), ("'~'", "~"), ('"a\\tb"', "a\tb"),
        ("9" * 5000, "9" * 5000), ("1e9999", "1e9999"),
    ],
)  # fmt: skip
def test_scalars_are_what_they_look_like(written: str, meant: object) -> None:
    """YAML 1.1's surprises are gone: sexagesimal, octal, dates, yes/no; and 1e-3 is a number."""
    found = yamlload.load(f"free: {written}", Tree).free
    assert (type(found), found) == (type(meant), meant)


def test_off_is_a_word() -> None:
    """`mode: off` reaches a Literal as text."""
    assert yamlload.load("leaf: {mode: off}", Tree).leaf == Leaf(mode="off")


def test_block_text_and_empty_documents() -> None:
    """Block scalars stay text; an empty or comment-only file is an empty mapping; a BOM-less stream start is fine."""
    assert yamlload.load("text: |\n  12\n", Tree).text == "12\n"
    assert (
        yamlload.load("", Tree) == yamlload.load("# only a comment\n", Tree) == yamlload.load("---\n", Tree) == Tree()
    )


def test_every_problem_comes_at_once_with_its_line() -> None:
    """Values, keys and YAML's own problems are told together, in the order of the text."""
    text = """\
leaf:
  count: many
  mdoe: on
leaves:
  - {count: 1}
  - count: 2
    mode: maybe
  - 3
leaf: {}
text: *nowhere
ratio: !!float 3
named: {a b: {count: .nan}}
"""
    assert lines(text) == [
        "f.yaml:2: leaf.count: expected a whole number, got 'many'",
        "f.yaml:3: leaf.mdoe: unknown key (did you mean 'mode'?)",
        "f.yaml:7: leaves[1].mode: expected one of on, off, auto, got 'maybe'",
        "f.yaml:8: leaves[2]: expected a mapping, got 3",
        "f.yaml:9: leaf: key is given twice, first in line 1",
        "f.yaml:10: text: anchors (&) and aliases (*) are not supported: write the value out",
        "f.yaml:11: ratio: tags (!) are not supported: remove it",
        "f.yaml:12: named['a b'].count: expected a whole number, got nan",
    ]


def test_a_missing_key_has_the_line_of_what_lacks_it() -> None:
    """There is no line for what is not there: the mapping that lacks it has one."""

    document = yamlload.parse("a: 1\nb:\n  - c: 2\n")
    assert document.locate(yamlload.Problem("b[0].missing", "…")).line == 3
    assert document.locate(yamlload.Problem("b.x.y.z", "…")).line == 2
    assert document.locate(yamlload.Problem("nothing", "…")).line == 1


def test_an_alias_bomb_costs_nothing() -> None:
    """Ten levels of ten aliases, 10^10 values when expanded, are refused where they stand."""
    bomb = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    found = lines("\n".join(bomb))
    assert sum("aliases (*)" in line for line in found) == 100


@pytest.mark.parametrize("text", ["[" * 100, "{a: " * 100, "- " * 100, "[" * 5000])
def test_nesting_is_bounded(text: str) -> None:
    """Deep nesting is refused, whatever the stack could bear."""
    (line,) = lines(text)
    assert line.startswith("f.yaml:1: ")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a: 1\n\tb: 2", "f.yaml:2: not valid YAML: "),
        ("text: 'open\n", "f.yaml:"),
        ("a: b: c", "f.yaml:1: not valid YAML: "),
        ("text: \ud800", "f.yaml:1: not valid Unicode"),
        ("\n\ntext: \x01", "f.yaml:3: not valid YAML: "),
        ("text: a\n---\ntext: b", "f.yaml:2: only one document is read: remove the '---'"),
        ("? [a]\n: 1", "f.yaml:1: a key must be plain text"),
        ("- 1", "f.yaml:1: expected a mapping, got a list"),
        ("just words", "f.yaml:1: expected a mapping, got 'just words'"),
    ],
)
def test_what_is_no_configuration_is_one_line(text: str, start: str) -> None:
    """Text that is not YAML, or not a mapping, is one line with the right number."""
    (line,) = lines(text)
    assert line.startswith(start), line


def test_the_error_holds_the_problems_for_a_program() -> None:
    """`problems` carries line, path and message apart."""
    with pytest.raises(InvalidConfigError) as caught:
        yamlload.load("ratio: x", Tree)
    ((line, problem),) = [(item.line, item.problem) for item in caught.value.problems]
    assert (line, problem.path) == (1, "ratio")


ALPHABET = st.sampled_from(list("ab:-? {}[]&*!|>'\"#%@`,\n\t\\0179.~\x00\x85\ufeff\ud800é"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(ALPHABET, max_size=60) | st.text(max_size=60))
def test_any_text_gives_a_value_or_a_config_error(text: str) -> None:
    """No text, however broken, raises anything else; every line names the file and a line that is there."""
    try:
        yamlload.load(text, Tree, "f.yaml")
    except ConfigError as exc:
        for line in str(exc).splitlines():
            number = int(line.removeprefix("f.yaml:").split(":")[0])
            assert 1 <= number <= len(text.splitlines()) + 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 5), st.sampled_from(["block", "flow"]))
def test_a_wrong_value_is_told_with_its_own_line(before: int, after: int, blank: int, style: str) -> None:
    """Wherever the one wrong value stands among right ones, its line is the one it was written on."""
    good = "  - {count: 2}" if style == "flow" else "  - mode: on\n    count: 2"
    rows = ["leaves:", *[good] * before, *["# -"] * blank, "  - mode: off", "    count: wrong", *[good] * after]
    text = "\n".join(rows)
    number = text.splitlines().index("    count: wrong") + 1
    assert lines(text) == [f"f.yaml:{number}: leaves[{before}].count: expected a whole number, got 'wrong'"]


# Of what PyYAML writes unquoted, 1E5 is a number by YAML 1.2, and to us.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])).filter(
    lambda text: not re.fullmatch(r"[-+]?\d+[eE][-+]?\d+", text)
)
JSON_LIKE = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz-_", min_size=1), inner, max_size=4),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(JSON_LIKE)
def test_what_another_yaml_writer_wrote_is_read_back(value: object) -> None:
    """PyYAML's own dump, aliases off, means the same to us (quoting keeps text text)."""

    class NoAliases(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    text = yaml.dump({"free": value}, Dumper=NoAliases, allow_unicode=True)
    assert yamlload.load(text, Tree).free == value
