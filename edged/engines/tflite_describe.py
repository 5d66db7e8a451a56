"""What a bare .tflite holds, told by the runtime itself, in a process of its own.

`python -m edged.engines.tflite_describe FILE` prints one JSON object; a file the runtime refuses gives exit code 65 and
the reason on standard error. A damaged or hostile model can kill the process that reads it: here that costs one child.
Nothing is allocated and no inference is run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edged.engines import tflite_runtime
from edged.errors import BadDataError, EdgedError, UnavailableError


def describe(model: bytes) -> dict[str, Any]:
    """Describe a model with the first runtime here that can be imported.

    Raises UnavailableError without a runtime, ValueError or RuntimeError as the runtime does when it refuses the model.
    """
    runtime, module = _runtime()
    interpreter = module.Interpreter(model_content=model, num_threads=1)
    # Counting operators has no public call in either runtime; both have had this one for years.
    operators = Counter(op["op_name"] for op in interpreter._get_ops_details())  # noqa: SLF001
    return {
        "runtime": f"{runtime.name} {runtime.version}",
        "inputs": _tensors(interpreter.get_input_details()),
        "outputs": _tensors(interpreter.get_output_details()),
        "signatures": interpreter.get_signature_list(),
        "operators": dict(sorted(operators.items())),
    }


def _runtime() -> tuple[tflite_runtime.Runtime, Any]:
    reasons = []
    for runtime in tflite_runtime.installed():
        try:
            return runtime, runtime.module()
        except UnavailableError as exc:  # two turns at the most
            reasons.append(str(exc))
    raise UnavailableError("runtime", "; ".join(reasons))


def _tensors(details: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": detail["name"],
            "dtype": np.dtype(detail["dtype"]).name,
            "shape": [int(size) for size in detail["shape_signature"]],
            "scales": [float(scale) for scale in detail["quantization_parameters"]["scales"]],
            "zero_points": [int(zero) for zero in detail["quantization_parameters"]["zero_points"]],
        }
        for detail in details
    ]


def main(argv: list[str]) -> int:
    """Describe one file."""
    (path,) = argv
    try:
        facts = describe(Path(path).read_bytes())
    except EdgedError as exc:
        return _refuse(str(exc), exc.exit_code)
    except OSError as exc:
        return _refuse(exc.strerror or str(exc), BadDataError.exit_code)
    except (ValueError, RuntimeError, SystemError, MemoryError) as exc:
        return _refuse(str(exc) or type(exc).__name__, BadDataError.exit_code)
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _refuse(reason: str, code: int) -> int:
    sys.stderr.write(" ".join(reason.split()) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
