"""The script that everyone writes: paho's on_message, numpy, set_tensor, invoke, get_tensor, publish.

python script.py RUNTIME MODEL raw|json PORT PREFIX QOS      MQTT 3.1.1, PREFIX/in -> PREFIX/out
raw: the tensor's bytes both ways. json: {"id", "b": base64 of the bytes} -> {"id", "y": [...]}
"""

from __future__ import annotations

import base64
import json
import sys
from importlib import import_module
from typing import Any

import numpy as np
import paho.mqtt.client as mqtt

runtime, path, form, port, prefix, qos = sys.argv[1:7]
interpreter = import_module(f"{runtime.replace('-', '_')}.interpreter").Interpreter(path, num_threads=1)
interpreter.allocate_tensors()
source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]


def on_connect(client: Any, _data: object, _flags: object, _reason: object, _properties: object) -> None:
    client.subscribe(prefix + "/in", int(qos))


def on_message(client: Any, _data: object, message: Any) -> None:
    if form == "json":
        asked = json.loads(message.payload)
        data = base64.b64decode(asked["b"])
    else:
        data = message.payload
    interpreter.set_tensor(source["index"], np.frombuffer(data, dtype=source["dtype"]).reshape(source["shape"]))
    interpreter.invoke()
    found = interpreter.get_tensor(target["index"])
    if form == "json":
        client.publish(prefix + "/out", json.dumps({"id": asked["id"], "y": found[0].tolist()}), int(qos))
    else:
        client.publish(prefix + "/out", found.tobytes(), int(qos))


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.on_connect = on_connect
client.on_message = on_message
client.connect("127.0.0.1", int(port))
client.loop_forever()
