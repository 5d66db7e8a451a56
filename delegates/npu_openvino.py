"""Intel's NPU through LiteRT's CompiledModel: the OpenVINO compiler plugin and dispatch library in the wheel.

Options: `device`, `NPU` (default), `GPU` or `CPU` of OpenVINO; `performance`, `latency` (default), `throughput` or
`cumulative_throughput`; `weight_sharing`, true or false, of partitions (default: the plugin's own);
`properties`, OpenVINO's own for compiling, text to text
(https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes.html). LiteRT does not
pass them on to what runs: on device CPU it stays bfloat16 where the CPU has that, whatever INFERENCE_PRECISION_HINT
says, unless ONEDNN_MAX_CPU_ISA=AVX2 is in the environment. And of a model that is taken in several pieces, LiteRT 2.3
compiles all but the first for the NPU, whatever `device` says; where there is none, that is refused.

OpenVINO's libraries come with `ai-edge-litert-sdk-intel` of the very version of ai-edge-litert, and must lie beside it:
the plugins look nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from delegates import devices, litertwheel, places
from delegates.base import DEFAULT, LITERT, Opening, Probe
from delegates.external import UNMEASURED, refuse, texts
from delegates.gpu import beside
from delegates.sharedlibrary import SharedLibrary

PLUGINS = Path("vendors/intel_openvino")
DISPATCH = PLUGINS / "dispatch" / "libLiteRtDispatch_IntelOpenvino.so"
COMPILER = PLUGINS / "compiler" / "libLiteRtCompilerPlugin_IntelOpenvino.so"
SDK = "ai-edge-litert-sdk-intel"
DEVICES = tuple(places.OPENVINO)
PERFORMANCE = ("latency", "throughput", "cumulative_throughput")
OPENCL = "libOpenCL.so.1"

_DRIVERS: Mapping[str, str] = {
    "NPU": "install Intel's NPU driver: https://github.com/intel/linux-npu-driver",
    "GPU": "sudo apt-get install intel-opencl-icd",
}


class NpuOpenvino:
    """OpenVINO on one of Intel's devices. note: what a person should know of it.

    root: where `dev` is; load: opens a library; both for tests.
    """

    isolated: ClassVar[bool] = True
    api: ClassVar[Literal["interpreter", "compiled_model"]] = "compiled_model"
    runtimes: ClassVar[frozenset[str]] = frozenset({LITERT})
    # Of the part that stays on the CPU. OpenVINO's own, CACHE_DIR, is written and cannot be read by ai-edge-litert 2.3.
    caches: ClassVar[bool] = True

    def __init__(
        self, options: Mapping[str, Any] | None = None, root: Path = devices.ROOT,
        load: Callable[[Sequence[str]], Any] = SharedLibrary,
    ) -> None:  # fmt: skip
        given = dict(options or {})
        self._device = _one_of("device", given.pop("device", "NPU"), DEVICES)
        self._performance = _one_of("performance", given.pop("performance", "latency"), PERFORMANCE)
        self._sharing = _sharing(given.pop("weight_sharing", None))
        self._properties = _properties(given.pop("properties", None))
        refuse("npu_openvino", given, ("device", "performance", "properties", "weight_sharing"))
        # What is no NPU must not be told as one.
        self.name = "npu_openvino" if self._device == "NPU" else f"npu_openvino:{self._device}"
        self.note = "" if self._device == "CPU" else UNMEASURED
        self._root, self._load = root, load

    def probe(self) -> Probe:
        """Look for the plugins, load them with OpenVINO's libraries, and look for a device that this user may open."""
        package = litertwheel.folder()
        missing = [file for file in (DISPATCH, COMPILER) if package is None or not (package / file).is_file()]
        if package is None or missing:
            told = f"ai-edge-litert {litertwheel.installed()} for this machine brings no {missing[0].name}"
            return Probe(available=False, reason=told if package else "no ai-edge-litert", fix=litertwheel.INSTALL)
        found = Probe(available=True, library=str(package / DISPATCH), version=litertwheel.installed())
        try:
            self._load([str(package / DISPATCH)])
            self._load([str(package / COMPILER)])
        except OSError as exc:
            told = str(exc).replace(f"{package}/", "")
            return replace(found, available=False, reason=f"{told}{_other_sdk()}", fix=_install())
        return self._driven(found)

    def _driven(self, found: Probe) -> Probe:
        if self._device == "CPU":
            return replace(found, device="cpu")
        wanted = places.OPENVINO[self._device]
        nodes = devices.nodes(wanted, self._root)
        if not nodes:
            told = f"no Intel {self._device}: there is no /{wanted[0]}"
            return replace(found, available=False, reason=told, fix=_DRIVERS[self._device])
        if self._device == "GPU":
            try:
                self._load([OPENCL])
            except OSError as exc:
                return replace(found, available=False, reason=str(exc), fix=_DRIVERS["GPU"])
        return devices.opened(found, nodes, self._root)

    def open(self, module: ModuleType, how: Opening = DEFAULT) -> Mapping[str, Any]:
        """Return the options of CompiledModel. Raises ValueError where this ai-edge-litert is too old to have them."""
        if not hasattr(module, "IntelOpenVinoOptions"):
            msg = f"this ai-edge-litert has no IntelOpenVinoOptions: {litertwheel.INSTALL}"
            raise ValueError(msg)
        kind = module.IntelOpenVinoOptions
        options = kind(
            graph_backend=kind.GRAPH_BACKEND[self._device],
            performance_mode=kind.PERFORMANCE_MODE[self._performance.upper()],
            configs_map=dict(self._properties),
            enable_weight_sharing=self._sharing,
        )
        return {
            "options": module.Options(
                intel_openvino_options=options, **beside(module, module.HardwareAccelerator.NPU, how)
            ),
            "environment": _environment(module),
        }


def _environment(module: ModuleType) -> Any:
    # Given no folders it takes the first vendor's by name, which need not be this one.
    package = Path(str(module.__file__)).parent
    folders = {"compiler_plugin_path": package / COMPILER.parent, "dispatch_library_path": package / DISPATCH.parent}
    return module.Environment.create(runtime_path=str(package), **{key: str(path) for key, path in folders.items()})


def _install() -> str:
    return f"pip install {SDK}=={litertwheel.installed()}"


def _other_sdk() -> str:
    """Return a remark where the SDK that is installed is made for another ai-edge-litert."""
    here, wanted = litertwheel.installed(SDK), litertwheel.installed()
    return f" ({SDK} {here} is installed, and {wanted} is needed)" if here not in ("", wanted) else ""


def _one_of(key: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        msg = f"npu_openvino: {key} must be one of {', '.join(known)}, not {value!r}"
        raise ValueError(msg)
    return str(value)


def _sharing(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        msg = f"npu_openvino: weight_sharing must be true or false, not {value!r}"
        raise ValueError(msg)
    return value


def _properties(value: object) -> dict[str, str]:
    found = texts("npu_openvino", value)
    if "CACHE_DIR" in found:
        msg = "npu_openvino: CACHE_DIR is written, and then ai-edge-litert cannot read what it wrote"
        raise ValueError(msg)
    return found
