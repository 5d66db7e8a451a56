"""The custom ops that vendors' compilers write: an op of this name is the accelerator's own code, and no CPU has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CompiledOp:
    """What a name tells. delegate: as in the registry, the one that runs it. accelerator: for a person.

    source: the file that defines the name.
    """

    delegate: str
    accelerator: str
    source: str


COMPILED_OPS: Mapping[str, CompiledOp] = {
    "edgetpu-custom-op": CompiledOp(
        "edgetpu",
        "Coral Edge TPU",
        "https://github.com/google-coral/libedgetpu/blob/master/tflite/public/edgetpu.h",
    ),
    "ethos-u": CompiledOp(
        "ethos_u",
        "Arm Ethos-U (Vela)",
        "https://github.com/nxp-imx/tflite-ethosu-delegate-imx/blob/HEAD/ethosu_delegate.h",
    ),
    "vsi-npu": CompiledOp(
        "vx",
        "VeriSilicon NPU or GPU (network binary graph)",
        "https://github.com/VeriSilicon/tflite-vx-delegate/blob/main/vsi_npu_custom_op.h",
    ),
    "NeutronGraph": CompiledOp(
        "neutron",
        "NXP eIQ Neutron",
        "https://github.com/nxp-imx/tflite-neutron-delegate/blob/HEAD/neutron_delegate.h",
    ),
}
