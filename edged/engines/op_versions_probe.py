"""Asks a TFLite runtime which ops it has, in which versions; the child process of `op_versions_measure`.

`python -m edged.engines.op_versions_probe RUNTIME` prints one JSON line: the release, builtin op → [lowest, highest]
version, and the custom ops. Works from Python 3.9 on, the newest for which the oldest releases were built.

The interpreter's constructor looks up every operator code of a file, used or not: a file with one code and no operator
tells whether that pair of op and version is there, and the refusal names the op. A custom op is looked up when a node
of it is prepared, so its file has one node, without tensors.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import sys
from collections.abc import Mapping
from typing import Any

from edged import magics
from edged.engines import tflite_runtime

# Names that op resolvers of TFLite, LiteRT and their tools have been known to register.
CUSTOM_OPS = (
    "AudioSpectrogram",
    "Convolution2DTransposeBias",
    "DISPATCH_OP",
    "DenseImageWarp",
    "MaxPoolingWithArgmax2D",
    "MaxUnpooling2D",
    "Mfcc",
    "NumericVerify",
    "TFLite_Detection_PostProcess",
    "TransformLandmarks",
    "TransformTensorBilinear",
    "aeq.hadamard_rotation",
    "edgetpu-custom-op",
    "odml.rmsnorm",
    "odml.scaled_dot_product_attention",
    "odml.update_external_kv_cache",
    "odml.update_kv_cache",
)
_CUSTOM = 32  # BuiltinOperator.CUSTOM: the code that says "by name"
_LAST = 32  # twice the highest version of any op so far
_NEVER = 1_000_000
_SCHEMA_VERSION = 3
_EMPTY_MAP = bytes.fromhex("00000100002401")  # {} as FlexBuffers: custom ops read their options from one
_ABSENT = re.compile(r"Didn't find op for builtin opcode '(\w+)'")
_BEYOND = "builtin_code out of range"
_UNRESOLVED = "unresolved custom op"


class Probe:
    """One runtime's own kernels: a default delegate would take some nodes, and hide that nothing else runs them.

    Raises RuntimeError where a runtime answers in a way that none does so far.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def builtin(self) -> dict[str, list[int]]:
        """Return op → [lowest, highest] version, for the ops that are there at all."""
        found: dict[str, list[int]] = {}
        for code in itertools.count():
            refusal = "" if code == _CUSTOM else self._refusal(builtin_model(code, _NEVER))
            if _BEYOND in refusal:
                break
            versions = [v for v in range(1, _LAST + 1) if refusal and self._has(code, v)]
            if versions:
                found[_op(refusal)] = _span(_op(refusal), versions)
        return found

    def has_custom(self, name: str) -> bool:
        """Whether a custom op is registered: its node is prepared then, and refused for want of tensors."""
        refusal = self._refusal(custom_model(name))
        if not refusal:
            raise RuntimeError(f"{name}: a node without tensors was taken")
        return _UNRESOLVED not in refusal

    def _has(self, code: int, version: int) -> bool:
        refusal = self._refusal(builtin_model(code, version))
        return not (refusal and _op(refusal))

    def _refusal(self, model: bytes) -> str:
        resolver = self._module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            interpreter = self._module.Interpreter(model_content=model, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as exc:
            return str(exc)
        return ""


def _op(refusal: str) -> str:
    match = _ABSENT.search(refusal)
    if match is None:
        raise RuntimeError(f"refused for another reason than a missing op: {refusal}")
    return match[1]


def _span(op: str, versions: list[int]) -> list[int]:
    low, high = versions[0], versions[-1]
    if high == _LAST or len(versions) != high - low + 1:
        raise RuntimeError(f"{op}: the versions {versions} do not fit into a table of lowest and highest")
    return [low, high]


def builtin_model(code: int, version: int) -> bytes:
    """Return a TFLite file with one builtin operator code and no operator."""
    return _model({0: min(code, 127), 2: version, 3: code}, [])


def custom_model(name: str) -> bytes:
    """Return a TFLite file with one node of a custom op, without inputs and outputs."""
    node = {0: 0, 1: [], 2: [], 5: _EMPTY_MAP}
    return _model({0: _CUSTOM, 1: name.encode(), 2: 1, 3: _CUSTOM}, [node])


def _model(code: Mapping[int, Any], nodes: list[Any]) -> bytes:
    """Return a model of one operator code, and one graph without tensors.

    The numbers are those of the fields in the schema:
    https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs
    """
    graph = {0: [], 1: [], 2: [], 3: nodes}
    return flatbuffer({0: _SCHEMA_VERSION, 1: [code], 2: [graph], 4: [{}]}, magics.TFLITE)


def flatbuffer(root: Mapping[int, Any], identifier: bytes) -> bytes:
    """Write a FlatBuffer: a mapping is a table by field number, a list a vector, bytes a string, an int 32 bits.

    A field that is narrower reads the lowest bytes of its number. Format: https://flatbuffers.dev/internals/
    """
    out = bytearray(4) + identifier
    struct.pack_into("<I", out, 0, _put(out, root))
    return bytes(out)


def _put(out: bytearray, node: Any) -> int:
    """Append a node and all below it, parents first, each on 4 bytes; return where it is."""
    if isinstance(node, bytes):
        at = len(out)
        out += struct.pack("<I", len(node)) + node + bytes(4 - len(node) % 4)
        return at
    if isinstance(node, list):
        head, values = struct.pack("<I", len(node)), node
    else:
        fields = sorted(node)
        slots = [4 + 4 * fields.index(i) if i in node else 0 for i in range(max(fields, default=-1) + 1)]
        vtable = struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), 4 + 4 * len(fields), *slots)
        out += bytes(len(vtable) % 4) + vtable
        head, values = struct.pack("<i", len(vtable)), [node[field] for field in fields]
    at = len(out)
    out += head + bytes(4 * len(values))
    for i, value in enumerate(values):
        place = at + 4 + 4 * i
        number = value if isinstance(value, int) else _put(out, value) - place
        struct.pack_into("<I", out, place, number)
    return at


def main(argv: list[str]) -> None:
    """Print what the runtime has."""
    runtime = tflite_runtime.by_name(argv[0])
    probe = Probe(runtime.module())
    custom = [name for name in CUSTOM_OPS if probe.has_custom(name)]
    answer = {"release": runtime.version, "builtin": probe.builtin(), "custom": custom}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
