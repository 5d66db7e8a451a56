"""The CPU: XNNPACK where the runtime applies it (ai-edge-litert: float and int8; tflite-runtime: float only).

Options: `xnnpack: false` keeps to the runtime's own kernels, which is the reference that others are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, Literal

from delegates.base import BOTH, DEFAULT, Opening, Probe


class Cpu:
    """The delegate that is always there."""

    name: ClassVar[str] = "cpu"
    isolated: ClassVar[bool] = False
    api: ClassVar[Literal["interpreter", "compiled_model"]] = "interpreter"
    runtimes: ClassVar[frozenset[str]] = BOTH
    caches: ClassVar[bool] = False
    note: ClassVar[str] = ""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        options = dict(options or {})
        self._xnnpack = options.pop("xnnpack", True)
        if not isinstance(self._xnnpack, bool):
            msg = f"cpu: xnnpack must be true or false, got {self._xnnpack!r}"
            raise ValueError(msg)  # noqa: TRY004  # what the protocol promises of a wrong option
        if options:
            msg = f"cpu: unknown option {sorted(options)[0]!r} (known: xnnpack)"
            raise ValueError(msg)

    def probe(self) -> Probe:
        """Return available: every machine has it."""
        return Probe(available=True, device="cpu")

    def open(self, module: ModuleType, how: Opening = DEFAULT) -> Mapping[str, Any]:  # noqa: ARG002  # nothing to tell it
        """Return the op resolver to use; XNNPACK is applied by the runtime at allocate_tensors."""
        kind = module.OpResolverType
        resolver = kind.AUTO if self._xnnpack else kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        return {"experimental_op_resolver_type": resolver}
