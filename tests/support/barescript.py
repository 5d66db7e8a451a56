"""What everybody would write: the same imports and the same model as the daemon's, and a connection. No edged in it."""

from __future__ import annotations

import sys
from pathlib import Path

from edged.engines.tflite_runtime import Runtime

# It says `ready` where a daemon would, once it is connected.
TOPIC = "edged/v1/dev/bare/status"
_SCRIPT = """
import sys, time
import numpy as np, yaml
import paho.mqtt.client as mqtt
from {package}.interpreter import Interpreter
yaml.safe_load(open(sys.argv[1]))
interpreter = Interpreter(model_content=open(sys.argv[2], 'rb').read())
interpreter.allocate_tensors()
interpreter.invoke()
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.on_connect = lambda *_: client.publish('{topic}', '{{"state": "ready"}}')
client.connect('127.0.0.1', int(sys.argv[3]))
client.loop_start()
time.sleep(600)
"""


def command(runtime: Runtime, config: Path, model: Path, port: int) -> list[str]:
    """Return the command line that runs it on a runtime, against the broker on `port`."""
    script = _SCRIPT.format(package=runtime.package, topic=TOPIC)
    return [sys.executable, "-c", script, str(config), str(model), str(port)]
