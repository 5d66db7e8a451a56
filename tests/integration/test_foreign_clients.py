"""Requesters that we did not write: mosquitto's own request/response tool and MQTT.js on Node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import require, tinymodel
from support.brokers import require_mosquitto
from support.daemons import DEVICE, DaemonProcess

from edged.broker import EmbeddedBroker

REQUEST = f"edged/v1/dev/{DEVICE}/req/dense/c"
X = np.array([[0.5, -1.25, 3.0]], np.float32)
EXPECTED = tinymodel.dense_expected(X)
MQTT_JS = "mqtt@5.16.0"

NODE_CLIENT = """
const mqtt = require('mqtt');
const [port, topic, version] = process.argv.slice(2);
const v5 = version === '5';
const client = mqtt.connect('mqtt://127.0.0.1:' + port, { protocolVersion: v5 ? 5 : 4 });
const inputs = Buffer.from(new Float32Array([0.5, -1.25, 3.0]).buffer);
client.on('connect', () => client.subscribe('edged/v1/resp/js/#', { qos: 1 }, () => {
  if (v5) {
    client.publish(topic, inputs, { qos: 1, properties: {
      responseTopic: 'edged/v1/resp/js/a', correlationData: Buffer.from('k1'),
      contentType: 'application/octet-stream' } });
  } else {
    client.publish(topic + '/k1/raw', inputs, { qos: 1 });
  }
}));
client.on('message', (topic, payload, packet) => {
  const p = packet.properties || {};
  console.log(JSON.stringify({ topic, hex: payload.toString('hex'),
    correlation: p.correlationData ? p.correlationData.toString() : null,
    status: p.userProperties ? p.userProperties.status : null }));
  client.end();
});
setTimeout(() => process.exit(3), 15000).unref();
"""


@pytest.fixture(scope="module")
def daemon(mosquitto: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory = tmp_path_factory.mktemp("foreign")
    tinymodel.write_dense_bundle(directory / "dense")
    with DaemonProcess(directory, mosquitto.port, {"models": [{"name": "dense", "bundle": "dense"}]}) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with MQTT.js installed in it."""
    require.programs("node", "npm")
    directory = tmp_path_factory.mktemp("node")
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), MQTT_JS]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    (directory / "client.js").write_text(NODE_CLIENT)
    return directory


def test_mosquitto_rr_gets_its_answer(daemon: DaemonProcess) -> None:
    """JSON request, MQTT 5 request/response as mosquitto's own tool does it."""
    require_mosquitto("mosquitto_rr")
    body = json.dumps({"instances": X.tolist()})
    command = ["mosquitto_rr", "-V", "5", "-p", str(daemon.port), "-q", "1", "-W", "10"]
    command += ["-t", f"{REQUEST}/rr", "-e", "edged/v1/resp/rr/1", "-m", body]
    command += ["-D", "publish", "content-type", "application/json"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(done.stdout) == {"predictions": EXPECTED.tolist()}


@pytest.mark.npm
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_mqtt_js_gets_its_answer(daemon: DaemonProcess, node: Path, version: str) -> None:
    """Raw float32 from a Float32Array; correlation and status come back in MQTT 5."""
    command = ["node", "client.js", str(daemon.port), f"{REQUEST}/js", version]
    done = subprocess.run(command, capture_output=True, cwd=node, check=True, timeout=30)
    reply = json.loads(done.stdout.splitlines()[0])
    assert bytes.fromhex(reply["hex"]) == EXPECTED.tobytes()
    if version == "5":
        assert reply == {"topic": "edged/v1/resp/js/a", "hex": reply["hex"], "correlation": "k1", "status": "ok"}
    else:
        assert reply["topic"] == "edged/v1/resp/js/k1"
