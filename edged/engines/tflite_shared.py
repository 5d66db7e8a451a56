"""Tensors in memory that comes from outside, where a runtime can have them there: no copy in, no copy out.

tflite-runtime's library exports its C++ class, and with it `Interpreter::SetCustomAllocationForTensor` (documented in
tensorflow/lite/core/interpreter.h); ai-edge-litert's does not. A name that is found tells by its mangling that the
arguments are what is passed here; where it is not found, or says no, the tensor stays where the runtime puts it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from edged.engines.base import Array
from edged.engines.tflite_runtime import Runtime

ALIGNMENT = 64  # kDefaultTensorAlignment, in bytes
_WRAPPER = "_pywrap_tensorflow_interpreter_wrapper"
# (int, const TfLiteCustomAllocation&, int64_t): that last one is a `long` on 64-bit systems, a `long long` on others.
_SYMBOL = "_ZN6tflite4impl11Interpreter28SetCustomAllocationForTensorEiRK22TfLiteCustomAllocation"
_OK = 0


class _Allocation(ctypes.Structure):
    """TfLiteCustomAllocation of tensorflow/lite/core/c/common.h."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def place(runtime: Runtime, interpreter: Any, arrays: Mapping[int, Array]) -> set[int]:
    """Let the tensors of these indices live in these arrays; returns those of which the runtime says that they do.

    Call it before allocate_tensors. The arrays must be contiguous, of the tensors' dtypes, and outlive the interpreter.
    """
    function = _function(runtime)
    if function is None:
        return set()
    handle = interpreter._native_handle()  # noqa: SLF001  # the address of the C++ object, which only this call gives
    return {index for index, array in arrays.items() if _placed(function, handle, index, array)}


def _function(runtime: Runtime) -> Any | None:
    if find_spec(f"{runtime.package}.{_WRAPPER}") is None:
        return None
    library = ctypes.CDLL(import_module(f"{runtime.package}.{_WRAPPER}").__file__)
    for int64 in "lx":
        try:
            function = library[_SYMBOL + int64]
        except AttributeError:
            continue
        function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Allocation), ctypes.c_int64)
        function.restype = ctypes.c_int
        return function
    return None


def _placed(function: Any, handle: int, index: int, array: Array) -> bool:
    address = array.ctypes.data
    if address % ALIGNMENT or not array.flags.c_contiguous:
        return False
    allocation = _Allocation(address, array.nbytes)
    return bool(function(handle, index, ctypes.byref(allocation), 0) == _OK)
