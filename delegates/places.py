"""Where each delegate shows on a machine, beside its own library: one row each, the only home of these facts.

The probes look here, and so does whoever asks whether a machine still looks as it did, at every start: reading this
imports nothing that is heavy. A delegate of another package has no row; its library alone tells when it changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Places:
    """nodes: of its devices, patterns below `/`; any of them serves. usb: vendor:product of its devices there.

    drivers: of `drivers.KINDS`, whose descriptions decide what runs. variables: of the environment, patterns of their
    names; they decide what is found, or change what it answers.
    """

    nodes: tuple[str, ...] = ()
    usb: frozenset[str] = frozenset()
    drivers: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


NOWHERE = Places()
# Of every delegate with a library: where the loader looks for it.
LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD")

_RENDER, _KGSL = "dev/dri/renderD*", "dev/kgsl-3d0"
_VULKAN = ("VK_*", "MESA_*", "DRI_PRIME")
_OPENCL = ("OCL_ICD_*", "OPENCL_*")
# OpenVINO's devices, by its own names.
OPENVINO: Mapping[str, tuple[str, ...]] = {"NPU": ("dev/accel/accel*",), "GPU": (_RENDER,), "CPU": ()}

PLACES: Mapping[str, Places] = {
    "gpu": Places(nodes=(_RENDER, "dev/nvidia[0-9]*", "dev/mali[0-9]*", _KGSL), drivers=("vulkan",), variables=_VULKAN),
    "gpu_tflite": Places(nodes=(_RENDER, "dev/mali*", _KGSL), drivers=("opencl",), variables=_OPENCL),
    # Its ids before its firmware is loaded, which the first inference does, and after.
    "edgetpu": Places(nodes=("dev/apex_*",), usb=frozenset({"1a6e:089a", "18d1:9302"})),
    "npu_openvino": Places(
        nodes=tuple(node for nodes in OPENVINO.values() for node in nodes),
        drivers=("opencl",),
        variables=(*_OPENCL, "ONEDNN_*", "OPENVINO_*", "OV_*", "ZE_*"),
    ),
    # USE_GPU_INFERENCE chooses between GPU and NPU on boards that have both: NXP, i.MX Machine Learning User's Guide.
    "vx": Places(nodes=("dev/galcore",), variables=("VIV_*", "USE_GPU_INFERENCE")),
    "neutron": Places(nodes=("dev/neutron*",)),
    "ethos_u": Places(nodes=("dev/ethosu*",)),
    "qnn": Places(nodes=("dev/fastrpc-*dsp*", "dev/adsprpc-smd*", _KGSL), variables=("ADSP_LIBRARY_PATH",)),
    "armnn": Places(drivers=("opencl",), variables=_OPENCL),
    "neuron": Places(nodes=("dev/apusys*",)),
}


def of(name: str) -> Places:
    """Return where a delegate of the registry shows."""
    return PLACES.get(name, NOWHERE)
