"""What is made of the words that LiteRT writes on standard error; the texts are of ai-edge-litert 2.3."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from edged.engines.tflite_compiled_log import Heard, listening

ADVICE = "Some ops are not accelerated. Add kLiteRtHwAcceleratorCpu to the compilation accelerator set to allow"
GENERIC = RuntimeError(f"ERROR: [./litert/cc/litert_compiled_model.h:1961]\n└ {ADVICE}")
GPU_PART = """I0000 00:00:1796063594.161021    4686 delegate_webgpu.cc:759] # of threads to compile kernels = 0
ERROR: Following operations are not supported by GPU delegate:
LOG_SOFTMAX: Operation is not supported.
3 operations will run on the GPU, and the remaining 1 operations will run on the CPU.
"""
GPU_NONE = "No operations will run on the GPU, and all 2 operations will run on the CPU.\n"
NPU_PART = """WARNING: [npu_registry.cc:34] NPU accelerator could not be loaded: kLiteRtStatusErrorNotFound.
INFO: [openvino_compiler_plugin.cc:497] op type 111 is not supported
INFO: [compiler_plugin.cc:742] Partitioned subgraph<0>, selected 1 ops, from a total of 2 ops. resulted in 1 partitions.
"""
NPU_DONE = (
    "INFO: [compiled_model.cc:1397] 1 compiler plugins were applied successfully: IntelOpenVINO compiler plugin\n"
)
NPU_FAILED = """ERROR: [openvino_compiler_plugin.cc:714] Exception in compilation: Exception from src/core.cpp:117:
Cannot load library "/a/b/openvino/libs/libx_loader.so": /a/b/openvino/libs/libx_loader.so: cannot open shared object

ERROR: [compiled_model.cc:1400] Plugin errs: IntelOpenVINO compiler plugin (ver 0.1.0)
"""
NO_VULKAN = """Warning: Couldn't load Vulkan: libvulkan.so.1: cannot open shared object file: No such file or directory
    at operator() (third_party/dawn/src/dawn/native/vulkan/BackendVk.cpp:368)

ERROR: [delegate_webgpu.cc:359] Failed to initialize WebGPU environment: INTERNAL: No adapters found
"""
NO_ADAPTER = """WARNING: Logging before InitGoogle() is written to STDERR
E0000 00:00:1796063460.255832    2391 delegate_webgpu.cc:736] Failed to get the environment: INTERNAL: No adapters found
=== Source Location Trace: ===
third_party/odml/litert/ml_drift/delegate/delegate_webgpu.cc:432
"""
DYNAMIC = "WARNING: Attempting to use a delegate that only supports static-sized tensors with a graph (tensor#2).\n"


@pytest.mark.parametrize(
    ("text", "share"),
    [(GPU_PART, (3, 4)), (NPU_PART + NPU_DONE, (1, 2)), (GPU_NONE, None), (NPU_PART + NPU_FAILED, None), ("", None)],
    ids=["gpu", "npu", "gpu takes none", "npu selects and cannot compile", "silence"],
)
def test_a_share_is_believed_only_where_it_is_said_in_numbers(text: str, share: tuple[int, int] | None) -> None:
    """The NPU's compiler counts what it would take before it fails to compile it: that is no share."""
    assert Heard(text).share() == share


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GPU_PART, "LOG_SOFTMAX: Operation is not supported."),
        (NPU_PART + NPU_FAILED, 'Cannot load library "libx_loader.so": libx_loader.so: cannot open shared object'),
        (NO_VULKAN, "Couldn't load Vulkan: libvulkan.so.1: cannot open shared object file: No such file or directory"),
        (NO_ADAPTER, "Failed to get the environment: INTERNAL: No adapters found"),
        (DYNAMIC, "Attempting to use a delegate that only supports static-sized tensors with a graph (tensor#2)."),
        ("ERROR: [x.cc:1] something else\n", "something else"),
        (NPU_PART, "Some ops are not accelerated."),
        ("", "Some ops are not accelerated."),
    ],
)
def test_the_reason_is_the_line_that_tells_the_cause(text: str, reason: str) -> None:
    """One line, without the decoration of logs, folders, and advice that we must not follow."""
    assert Heard(text).reason(GENERIC) == reason


@contextmanager
def standard_error(file: int) -> Iterator[None]:
    """Let this be descriptor 2."""
    kept = os.dup(2)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_native_words_are_heard_and_passed_on() -> None:
    """What C code writes past Python arrives here and where it would have arrived, when an exception ends it too."""
    heard = Heard()

    def talk_and_fail() -> None:
        nonlocal heard
        with listening() as heard:
            ctypes.CDLL(None).write(2, b"from C\n", 7)
            raise ValueError("x")

    reader, writer = os.pipe()
    with standard_error(writer):
        with pytest.raises(ValueError, match="x"):
            talk_and_fail()
        os.write(2, b"after\n")
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert _own(pipe.read().decode()) == ["from C", "after"]
    assert _own(heard.text) == ["from C"]


def _own(text: str) -> list[str]:
    """The lines of this test: a runtime that another one loaded may let go of something meanwhile, and say so."""
    return [line for line in text.splitlines() if not line.startswith("INFO: ")]


@pytest.mark.parametrize("cut", [False, True], ids=["grows", "is cut meanwhile"])
def test_a_readable_file_is_read_where_it_lies(cut: bool) -> None:
    """An isolated engine's words are in the file at once: a crash does not take them along."""
    with tempfile.TemporaryFile(buffering=0) as file, standard_error(file.fileno()):
        os.write(2, b"before\n")
        with listening() as heard:
            if cut:
                os.ftruncate(2, 0)
                os.lseek(2, 0, os.SEEK_SET)
            os.write(2, b"now\n")
            assert os.pread(file.fileno(), 100, 0).endswith(b"now\n")
    assert heard.text == "now\n"
