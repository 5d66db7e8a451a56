"""Whether a TFLite runtime that is installed here takes a model, found by loading it; the child of `tflite_tried`.

`python -m edged.engines.tflite_describe FILE RUNTIME` loads the file and allocates its tensors, as a daemon does, and
prints one JSON object: `partition`, for every op of the main graph the number of the piece that XNNPACK took it with
(see `tflite_partitions.partitions`); null where that cannot be told; `pieces`, how many there are. A file that the
runtime refuses gives exit code 65 and the reason on standard error. No inference is run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edged import childprocess
from edged.engines import tflite_file, tflite_partitions, tflite_runtime, tflite_words
from edged.errors import BadDataError, EdgedError


def load(model: bytes, name: str) -> tuple[tuple[int, ...] | None, int]:
    """Load a model with one runtime; return the partition of each op, None where that is not told, and their number.

    Raises UnavailableError when the runtime cannot be imported; ValueError, RuntimeError or MemoryError as the runtime
    does when it refuses the model.
    """
    interpreter = tflite_runtime.by_name(name).module().Interpreter(model_content=model, num_threads=1)
    # Only now are ops of TensorFlow missed, and shapes that do not go together found out.
    interpreter.allocate_tensors()
    try:
        return tflite_partitions.partitions(interpreter, tflite_file.read(model).graphs[0])
    except ValueError:
        return None, 0


def main(argv: list[str]) -> int:
    """Load one file."""
    childprocess.die_with_parent()
    path, name = argv
    try:
        partition, pieces = load(tflite_file.content(Path(path)), name)
    except EdgedError as exc:
        return _refuse(str(exc), exc.exit_code)
    except OSError as exc:
        return _refuse(exc.strerror or str(exc), BadDataError.exit_code)
    # SystemError: tflite-runtime on numpy 2
    except (ValueError, RuntimeError, SystemError, MemoryError) as exc:
        return _refuse(tflite_words.why(exc), BadDataError.exit_code)
    sys.stdout.write(json.dumps({"partition": partition, "pieces": pieces}) + "\n")
    return 0


def _refuse(reason: str, code: int) -> int:
    sys.stderr.write(" ".join(reason.split()) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
