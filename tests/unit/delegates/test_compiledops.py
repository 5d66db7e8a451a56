"""The names that vendors' compilers give their ops."""

from __future__ import annotations

import pytest

from delegates import registry
from delegates.compiledops import COMPILED_OPS


@pytest.mark.parametrize("name", COMPILED_OPS)
def test_a_name_tells_a_delegate_of_the_registry(name: str) -> None:
    """The name that a configuration has, and where the op's name is defined."""
    made = COMPILED_OPS[name]
    assert made.delegate in registry.BUILT_IN
    assert made.source.startswith("https://github.com/")
    assert made.accelerator
