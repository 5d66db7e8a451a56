"""`python -m zoo.recipes.make NAME DIR`: one model of the zoo, made by TensorFlow in this process."""

from __future__ import annotations

import sys
from pathlib import Path

from zoo.recipes import published, trained, traps


def main(name: str, out: Path) -> None:
    """Find the recipe in the modules and follow it."""
    recipe = next(found for module in (trained, published, traps) if (found := vars(module).get(name)))
    recipe(out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
