"""The child that looks for one delegate: its library's constructors run here, and may crash or hang.

`python -m delegates.probe NAME` reads the delegate's options, as JSON, and prints one JSON object, the fields of a
`Probe`. Whatever a library prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from delegates import registry
from delegates.base import Probe

# The process that asked ends this one long before; where it was killed itself, mostly the kernel does.
_LONGEST_S = 600
_PR_SET_PDEATHSIG = 1


def probe(name: str, options: str) -> Probe:
    """Probe one delegate of the registry; options: JSON. What is wrong with them is the reason."""
    try:
        delegate = registry.create(name, json.loads(options))
        before = _libraries()
        found = delegate.probe()
        return replace(found, needs=tuple(sorted(_libraries() - before - {found.library})))
    except (KeyError, ValueError, OSError, ImportError) as exc:
        return Probe(available=False, reason=" ".join(str(exc.args[0] if exc.args else exc).split()))


def _libraries() -> frozenset[str]:
    """Return the paths of the shared libraries in this process, as the kernel tells them: links are resolved."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return frozenset()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return frozenset(path for path in paths if ".so" in path.rpartition("/")[2])


def _die_with_parent() -> None:
    """Do as `edged.childprocess.die_with_parent`, which is no room that may be used from here."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = os.environ.pop("EDGED_PARENT", "")
    if parent and parent != str(os.getppid()):
        os.kill(os.getpid(), signal.SIGKILL)


def main(argv: Sequence[str]) -> int:
    """Print what was found."""
    signal.alarm(_LONGEST_S)
    _die_with_parent()
    answers = os.dup(1)
    os.dup2(2, 1)
    found = probe(argv[0], sys.stdin.read())
    os.write(answers, json.dumps(asdict(found)).encode() + b"\n")
    # Not through the libraries' own ends, which nobody asked for and which can crash.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
