"""The GPU through LiteRT's CompiledModel: its WebGPU accelerator, which speaks Vulkan on Linux.

Options: `precision`, `auto` (default: half precision where the GPU has it) or `float32`; and four switches of
`GpuOptions` (https://github.com/google-ai-edge/LiteRT, litert/c/options/litert_gpu_options.h), all off by default:
`infinite_float_capping` caps infinities before a softmax and in paddings; `constant_tensor_sharing` shares constants
between graphs; `allow_src_quantized_fc_conv_ops` quantizes inputs of large layers to 8 bits, and needs the one before;
`hint_waiting_for_completion` waits for the GPU after each inference.

Its answers must be compared with the CPU's: CUMSUM over the first dimension is taken as a whole and answered with its
own input (rank below 4) or zeros (rank 4, batch 1), with no error, in ai-edge-litert 2.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from delegates import devices, drivers, litertwheel, places
from delegates.base import DEFAULT, LITERT, Opening, Probe
from delegates.external import refuse
from delegates.sharedlibrary import SharedLibrary

LIBRARY, LOADER = "libLiteRtWebGpuAccelerator.so", "libvulkan.so.1"
PRECISIONS = ("auto", "float32")
SWITCHES = (
    "infinite_float_capping",
    "constant_tensor_sharing",
    "allow_src_quantized_fc_conv_ops",
    "hint_waiting_for_completion",
)
# Parts of the library names of rasterizers that run on the CPU: Mesa's lavapipe, and SwiftShader.
SOFTWARE = ("lvp", "swiftshader")
WEIGHTS = "xnnpack-weights"

_DRIVERS = "sudo apt-get install mesa-vulkan-drivers, or the driver of the GPU's vendor"


class Gpu:
    """Any GPU with a Vulkan driver. root: where `dev`, `etc` and `usr` are; load: opens a library; both for tests."""

    name: ClassVar[str] = "gpu"
    isolated: ClassVar[bool] = True
    api: ClassVar[Literal["interpreter", "compiled_model"]] = "compiled_model"
    runtimes: ClassVar[frozenset[str]] = frozenset({LITERT})
    # Of the part that stays on the CPU: Python reaches no cache of the GPU's own programs.
    caches: ClassVar[bool] = True
    note: ClassVar[str] = "its makers ran it on a software GPU alone"

    def __init__(
        self, options: Mapping[str, Any] | None = None, root: Path = devices.ROOT,
        load: Callable[[Sequence[str]], Any] = SharedLibrary,
    ) -> None:  # fmt: skip
        given = dict(options or {})
        self._float32 = _precision(given.pop("precision", "auto")) == "float32"
        self._switches = {key: _switch(key, given.pop(key)) for key in SWITCHES if key in given}
        refuse(self.name, given, ("precision", *SWITCHES))
        if self._switches.get("allow_src_quantized_fc_conv_ops") and not self._switches.get("constant_tensor_sharing"):
            msg = "gpu: allow_src_quantized_fc_conv_ops needs constant_tensor_sharing: true"
            raise ValueError(msg)
        self._root, self._load = root, load

    def probe(self) -> Probe:
        """Look for the accelerator's library, the Vulkan loader, a driver, and a GPU that this user may open."""
        package = litertwheel.folder()
        library = None if package is None else package / LIBRARY
        if library is None or not library.is_file():
            told = f"ai-edge-litert {litertwheel.installed()} brings no {LIBRARY}" if package else "no ai-edge-litert"
            return Probe(available=False, reason=told, fix=litertwheel.INSTALL)
        found = Probe(available=True, library=str(library), version=litertwheel.installed())
        try:
            self._load([LOADER])
        except OSError as exc:
            return replace(found, available=False, reason=str(exc), fix="sudo apt-get install libvulkan1")
        return self._driven(found)

    def _driven(self, found: Probe) -> Probe:
        libraries = filter(None, map(drivers.library, drivers.vulkan(self._root, os.environ)))
        described = [Path(library).name for library in libraries]
        soft = [driver for driver in described if any(part in driver for part in SOFTWARE)]
        nodes = devices.nodes(places.of(self.name).nodes, self._root)
        if nodes and len(described) > len(soft):
            return devices.opened(found, nodes, self._root)
        if soft:
            return replace(found, device=f"software rasterizer {soft[0]}: no GPU")
        if described:
            told = f"Vulkan has a driver ({', '.join(described)}), and there is no GPU: no /dev/dri/renderD*"
            return replace(found, available=False, reason=told, fix="check with vulkaninfo --summary")
        return replace(found, available=False, reason="Vulkan has no driver", fix=_DRIVERS)

    def open(self, module: ModuleType, how: Opening = DEFAULT) -> Mapping[str, Any]:
        """Return the options of CompiledModel. Raises ValueError where this ai-edge-litert is too old to have them."""
        if not hasattr(module, "GpuOptions"):
            msg = f"this ai-edge-litert has no GpuOptions: {litertwheel.INSTALL}"
            raise ValueError(msg)
        options = module.GpuOptions(enforce_f32=self._float32, **self._switches)
        return {
            "options": module.Options(gpu_options=options, **beside(module, module.HardwareAccelerator.GPU, how)),
            "environment": _environment(module),
        }


def beside(module: ModuleType, accelerator: Any, how: Opening) -> dict[str, Any]:
    """Return the arguments of `Options` for the accelerator alone, or with the CPU beside it for what it leaves."""
    if how.alone:
        return {"hardware_accelerators": accelerator}
    # A file: told a directory, as its documentation says, it only complains.
    cache = "" if how.cache is None else str(how.cache / WEIGHTS)
    cpu = module.CpuOptions(num_threads=how.threads, xnnpack_weight_cache_path=cache)
    return {"hardware_accelerators": accelerator | module.HardwareAccelerator.CPU, "cpu_options": cpu}


def _environment(module: ModuleType) -> Any:
    # Given no folders it looks for the NPU's plugins, and loads what it finds, which a GPU has no use for.
    package = Path(str(module.__file__)).parent
    nothing = str(package / "none")
    return module.Environment.create(
        runtime_path=str(package), compiler_plugin_path=nothing, dispatch_library_path=nothing
    )


def _precision(value: object) -> str:
    if value not in PRECISIONS:
        msg = f"gpu: precision must be {' or '.join(PRECISIONS)}, not {value!r}"
        raise ValueError(msg)
    return str(value)


def _switch(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        msg = f"gpu: {key} must be true or false, not {value!r}"
        raise ValueError(msg)  # noqa: TRY004  # a wrong option is a ValueError, of whatever kind it is
    return value
