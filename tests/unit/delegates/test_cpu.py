"""The CPU as a delegate: its one option."""

from __future__ import annotations

import pytest

from delegates.cpu import Cpu


@pytest.mark.parametrize("wrong", ["false", 0, None])
def test_the_switch_is_a_boolean(wrong: object) -> None:
    """A text that is not empty would count as true, whatever it says."""
    with pytest.raises(ValueError, match="xnnpack must be true or false"):
        Cpu({"xnnpack": wrong})
