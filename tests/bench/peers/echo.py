"""paho responders that send the first bytes of a request back, as MQTT 5: python echo.py KIND PORT TOPIC QOS BYTES

callback: published from on_message, on the network thread. hop: handed to a second thread and published from there, as
any daemon with a thread of its own for inference must. Both set TCP_NODELAY and re-arm TCP_QUICKACK.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

kind, port, topic, qos, reply_bytes = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
work: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()


def acknowledge_at_once(sock: Any) -> None:
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def on_open(_client: paho.Client, _data: object, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    acknowledge_at_once(sock)


def reply(message: paho.MQTTMessage) -> None:
    properties = Properties(PacketTypes.PUBLISH)
    properties.CorrelationData = message.properties.CorrelationData
    payload = bytes(message.payload[:reply_bytes])
    client.publish(message.properties.ResponseTopic, payload, qos, properties=properties)


def on_message(_client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
    acknowledge_at_once(client.socket())
    (work.put if kind == "hop" else reply)(message)


def worker() -> None:
    while True:
        reply(work.get())


client.on_socket_open = on_open
client.on_message = on_message
client.on_publish = lambda c, _data, _mid, _reason, _properties: acknowledge_at_once(c.socket())
client.on_connect = lambda c, _data, _flags, _reason, _properties: c.subscribe(topic, qos)
client.connect("127.0.0.1", port, 60)
if kind == "hop":
    threading.Thread(target=worker, daemon=True).start()
    client.loop_start()
    threading.Event().wait()
else:
    client.loop_forever()
