"""Every table of documented ops, by which a delegate is judged where no such device is at hand.

To add one, write a `Table` in a module beside `optables_devices`, and list it here.
"""

from __future__ import annotations

from delegates.oprules import Table
from delegates.optables_devices import ARMNN, EDGETPU, ETHOS_U, GPU, NEUTRON, VX
from delegates.optables_litert import GPU as LITERT_GPU
from delegates.optables_litert import NEURON, OPENVINO, QNN, XNNPACK_LITERT, XNNPACK_TFLITE

TABLES: tuple[Table, ...] = (
    XNNPACK_LITERT,
    XNNPACK_TFLITE,
    GPU,
    LITERT_GPU,
    EDGETPU,
    ETHOS_U,
    VX,
    NEUTRON,
    QNN,
    ARMNN,
    NEURON,
    OPENVINO,
)
