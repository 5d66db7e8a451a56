"""Named accelerators whose makers bring a library with TFLite's interface of external delegates: one row each.

None of them was at hand: what a row says is taken from the document it names, and marked so wherever it is shown. The
measurement on the device decides. A row is called with the options of the configuration: `library` names another file,
the keys that are known stand beside it, and `options` passes further ones on unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from delegates import devices, optables_devices, optables_litert, places
from delegates.base import Probe
from delegates.external import CACHE, UNMEASURED, LibraryDelegate, path_or_name, refuse, texts
from delegates.oprules import Table
from delegates.sharedlibrary import SharedLibrary


@dataclass(frozen=True)
class Row:
    """One vendor's delegate. source: the document that tells its library and options.

    libraries: file names, the likeliest first. keys: the options that the document has; defaults: of them, those that
    are told where the configuration says nothing. install: how to get the library. table: its documented ops.
    remark: what else a person should know. Where its device shows is told by `places`.
    """

    name: str
    title: str
    libraries: tuple[str, ...]
    source: str
    table: Table = field(repr=False)
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    install: str = ""
    remark: str = ""

    def __call__(self, options: Mapping[str, Any] | None = None) -> Vendor:
        """Construct the delegate. Raises ValueError for an unknown or wrong option."""
        return Vendor(self, options)


class Vendor(LibraryDelegate):
    """The delegate of a row. root: where `dev` is, another one for tests."""

    def __init__(self, row: Row, options: Mapping[str, Any] | None = None, root: Path = devices.ROOT) -> None:
        given = dict(options or {})
        libraries = [path_or_name(row.name, given.pop("library"))] if "library" in given else row.libraries
        unseen = texts(row.name, given.pop("options", None))
        refuse(row.name, given, (*row.keys, "library", "options"))
        self._row, self._root = row, root
        super().__init__(row.name, libraries, {**row.defaults, **texts(row.name, given), **unseen}, row.install)

    @property
    def note(self) -> str:  # type: ignore[override]  # told by the row
        """What a person should know of it."""
        return "; ".join(filter(None, [f"{UNMEASURED} ({self._row.source})", self._row.remark]))

    def look(self, library: SharedLibrary, found: Probe) -> Probe:  # noqa: ARG002  # only the device is missing
        """Look for the device's node."""
        patterns = places.of(self._row.name).nodes
        if not patterns:
            return found
        nodes = devices.nodes(patterns, self._root)
        if nodes:
            return devices.opened(found, nodes, self._root)
        wanted = " or ".join(f"/{pattern}" for pattern in patterns)
        other = f"{{external: {{library: {found.library}}}}}"
        fix = f"load the vendor's kernel driver; {other} does not look for the node"
        return replace(found, available=False, reason=f"there is no {wanted}", fix=fix)


VX = Row(
    "vx",
    "NXP i.MX 8 and other VeriSilicon NPUs and GPUs (OpenVX)",
    ("libvx_delegate.so",),
    "https://github.com/VeriSilicon/tflite-vx-delegate, vx_delegate_adaptor.cc",
    optables_devices.VX,
    keys=(
        "allowed_cache_mode", "cache_file_path", "device_id", "allowed_multi_device_mode", "model_location",
        "allowed_builtin_code", "error_during_init", "error_during_prepare", "error_during_invoke",
    ),
    install="install tensorflow-lite-vx-delegate from the board's image (Yocto: meta-imx)",
    remark=f"keeps one compiled partition for a whole model, so its cache is off unless cache_file_path has {CACHE}",
)  # fmt: skip

NEUTRON = Row(
    "neutron",
    "NXP i.MX 95 eIQ Neutron",
    ("libneutron_delegate.so", "liblitert_neutron_delegate.so"),
    "https://github.com/nxp-imx/tflite-neutron-delegate, neutron_delegate_adaptor.cc",
    optables_devices.NEUTRON,
    install="install tensorflow-lite-neutron-delegate from the board's image (Yocto: meta-imx)",
    remark="its adaptor reads no options; its models are converted beforehand",
)

ETHOS_U = Row(
    "ethos_u",
    "Arm Ethos-U65 of NXP i.MX 93",
    ("libethosu_delegate.so",),
    "https://github.com/nxp-imx/tflite-ethosu-delegate-imx, external_delegate_adaptor.cc",
    optables_devices.ETHOS_U,
    keys=("device_name", "timeout", "enable_cycle_counter", "pmu_event0", "pmu_event1", "pmu_event2", "pmu_event3"),
    install="install tensorflow-lite-ethosu-delegate from the board's image (Yocto: meta-imx)",
    remark="timeout is in nanoseconds, 60 s by default; its models are compiled beforehand, with Vela",
)

QNN = Row(
    "qnn",
    "Qualcomm AI Engine Direct (Hexagon, Adreno)",
    ("libQnnTFLiteDelegate.so",),
    "https://docs.qualcomm.com/doc/80-63442-10/topic/options.html",
    optables_litert.QNN,
    keys=(
        "backend_type", "library_path", "skel_library_dir", "cache_dir", "model_token", "log_level", "gpu_precision",
        "gpu_performance_mode", "dsp_performance_mode", "htp_performance_mode", "htp_precision", "htp_device_id",
    ),
    # It heeds the directory only together with a token, which names the model: the directory is of one model here.
    defaults={"backend_type": "htp", "cache_dir": CACHE, "model_token": "edged"},
    install="install the Qualcomm AI Runtime (QAIRT) for the board",
    remark="modes and levels are numbers, and a word can end the process; the document has more options than these",
)  # fmt: skip

ARMNN = Row(
    "armnn",
    "Arm NN (Mali GPUs, Cortex-A)",
    ("libarmnnDelegate.so",),
    "https://github.com/ARM-software/armnn, delegate/common/src/DelegateOptions.cpp",
    optables_devices.ARMNN,
    keys=(
        "backends", "dynamic-backends-path", "logging-severity", "gpu-tuning-level", "gpu-tuning-file",
        "gpu-mlgo-tuning-file", "gpu-enable-profiling", "gpu-kernel-profiling-enabled", "save-cached-network",
        "cached-network-filepath", "enable-fast-math", "number-of-threads", "reduce-fp32-to-fp16", "debug-data",
        "infer-output-shape", "allow-expanded-dims", "memory-import", "enable-internal-profiling",
        "internal-profiling-detail", "enable-external-profiling", "timeline-profiling", "outgoing-capture-file",
        "incoming-capture-file", "file-only-external-profiling", "counter-capture-period", "profiling-file-format",
        "serialize-to-dot", "disable-tflite-runtime-fallback",
    ),
    defaults={"backends": "GpuAcc,CpuAcc"},  # its own default is the slow reference
    install="install libarmnn and its delegate: https://github.com/ARM-software/armnn/releases",
)  # fmt: skip

NEURON = Row(
    "neuron",
    "MediaTek NeuroPilot (Genio)",
    ("libneuron_stable_delegate.so",),
    "https://mediatek.gitlab.io/genio/doc/iot-aihub/master/ai_hub/supported_os/yocto/litert.html",
    optables_litert.NEURON,
    install="install the NeuroPilot packages of the board's image",
    remark="the library of its Linux images has the interface of stable delegates, which Python runtimes cannot use; "
    "the name of its device's node is not verified",
)

GPU_TFLITE = Row(
    "gpu_tflite",
    "TFLite GPU delegate (OpenCL, OpenGL ES)",
    ("libtensorflowlite_gpu_delegate.so",),
    "https://github.com/tensorflow/tensorflow/tree/master/tensorflow/lite/delegates/gpu",
    optables_devices.GPU,
    install="build tensorflow/lite/delegates/gpu:libtensorflowlite_gpu_delegate.so with bazel for this machine",
    remark="the names of its options differ from build to build, and so does whether it has the entry point: "
    "they go below `options`",
)

ROWS = {row.name: row for row in (VX, NEUTRON, ETHOS_U, QNN, ARMNN, NEURON, GPU_TFLITE)}
