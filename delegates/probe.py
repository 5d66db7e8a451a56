"""The child that looks for one delegate: its library's constructors run here, and may crash or hang.

`python -m delegates.probe NAME OPTIONS` prints one JSON object, the fields of a `Probe`. OPTIONS: the delegate's, as
JSON. Whatever a library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict

from delegates import registry
from delegates.base import Probe

# The process that asked ends this one long before; where it was killed itself, nobody else would.
_LONGEST_S = 600


def probe(name: str, options: str) -> Probe:
    """Probe one delegate of the registry; options: JSON. What is wrong with them is the reason."""
    try:
        return registry.create(name, json.loads(options)).probe()
    except (KeyError, ValueError, OSError, ImportError) as exc:
        return Probe(available=False, reason=" ".join(str(exc.args[0] if exc.args else exc).split()))


def main(argv: Sequence[str]) -> int:
    """Print what was found."""
    signal.alarm(_LONGEST_S)
    answers = os.dup(1)
    os.dup2(2, 1)
    found = probe(*argv)
    os.write(answers, json.dumps(asdict(found)).encode() + b"\n")
    # Not through the libraries' own ends, which nobody asked for and which can crash.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
