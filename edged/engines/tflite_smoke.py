"""Whether a TFLite runtime that is installed really works: a child process adds two numbers with it.

A runtime can import well and fail at the first model (tflite-runtime with numpy 2 does), or kill its process.
`python -m edged.engines.tflite_smoke RUNTIME` prints one JSON object: `reason`, "" where it works, and `numpy`, the
version that it was given.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edged import childprocess, limits
from edged.engines import tflite_runtime, tflite_tried
from edged.engines.tflite_runtime import Runtime
from edged.errors import UnavailableError
from edged.limits import Limits, Watch
from edged.shown import one_line, plain

TIMEOUT_S = 30.0

# y = x + x, float32 [2]: the smallest model that there is, 296 bytes.
MODEL = base64.b64decode(
    "GAAAAFRGTDMAAA4AFAAQAAwACAAAAAQADgAAABAAAAAYAAAA9AAAAAMAAAABAAAABAAAABT///8BAAAAFAAAAAAADgAYABQAEAAMAAgABAAOAAAA"
    "FAAAABwAAABcAAAAYAAAAGQAAAAEAAAAbWFpbgAAAAABAAAAFAAAAAAADgAUAAAAEAAMAAsABAAOAAAAEAAAAAAAAAsMAAAAEAAAAID///8BAAAA"
    "AQAAAAIAAAAAAAAAAAAAAAEAAAABAAAAAQAAAAAAAAACAAAAMAAAAAQAAADk////CAAAAAwAAAABAAAAeQAAAAEAAAACAAAADAAMAAgAAAAAAAQA"
    "DAAAAAgAAAAMAAAAAQAAAHgAAAABAAAAAgAAAAEAAAAIAAAABAAEAAQAAAA="
)


@dataclass(frozen=True)
class Health:
    """One runtime. version: as its installer wrote it down. reason: why it does not work; fix: what would mend it."""

    name: str
    installed: bool
    works: bool
    version: str = ""
    reason: str = ""
    fix: str = ""


def health(runtime: Runtime, env: Mapping[str, str] | None = None) -> Health:
    """Return how a runtime is. env: of the child process, this one's without it."""
    if not runtime.installed:
        why, fix = "is not installed", _install(runtime.name)
        return Health(runtime.name, installed=False, works=False, reason=why, fix=fix)
    version = tflite_tried.installed_version(runtime)
    told, numpy = _tried(runtime.name, env)
    fix = _fix(runtime.name, numpy) if told else ""
    return Health(runtime.name, installed=True, works=not told, version=version, reason=told, fix=fix)


def _tried(name: str, env: Mapping[str, str] | None) -> tuple[str, str]:
    module = "edged.engines.tflite_smoke"
    with childprocess.start_answering(module, name, env=env) as child:
        try:
            told = childprocess.guarded_answer(child, Watch(child.pid, Limits(TIMEOUT_S, limits.available() // 2)))
        except childprocess.NoAnswerError as exc:
            return f"its process {plain(str(exc))}", ""
    return plain(told["reason"]), told["numpy"]


def _fix(name: str, numpy: str) -> str:
    if name == "tflite-runtime" and not numpy.startswith(("1.", "0.")) and numpy:
        return "pip install 'numpy<2'"
    return f"pip install --force-reinstall {name}"


def _install(name: str) -> str:
    if name == "tflite-runtime":
        wheels = sys.version_info < (3, 12)
        return "pip install tflite-runtime 'numpy<2'" if wheels else "its last release is for Python 3.11 at most"
    wheels = os.uname().machine in ("x86_64", "aarch64")
    return f"pip install {name}" if wheels else f"{name} has no wheels for {os.uname().machine}"


def add(name: str) -> str:
    """Return why a runtime cannot add 1 and 2 to themselves, "" where it can."""
    try:
        interpreter = tflite_runtime.by_name(name).module().Interpreter(model_content=MODEL)
        interpreter.allocate_tensors()
        import numpy as np  # noqa: PLC0415  # after the runtime, whose trouble with it is what is looked for

        interpreter.set_tensor(0, np.array([1, 2], np.float32))
        interpreter.invoke()
        answer = interpreter.get_tensor(1).tolist()
    except UnavailableError as exc:
        return exc.what
    # SystemError, AttributeError: a runtime built against another numpy
    except (SystemError, AttributeError, ImportError, RuntimeError, ValueError, OSError) as exc:
        return one_line(exc)
    return "" if answer == [2.0, 4.0] else f"it says that 1+1 and 2+2 are {answer}"


def main(argv: Sequence[str]) -> int:
    """Try one runtime."""
    childprocess.die_with_parent()
    reason = add(argv[0])
    numpy = getattr(sys.modules.get("numpy"), "__version__", "")
    sys.stdout.write(json.dumps({"reason": reason, "numpy": numpy}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
