"""From a configuration and a person's wishes to what is recorded, and what is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from edged import config as configuration
from edged.config import Config
from edged.errors import ConfigError, EdgedError, UsageError
from edged.recording import plan
from edged.recording.plan import Wish
from edged.recording.source import Arrays, Payloads, Requests, Windows

IMU = {
    "name": "imu", "topic": "sensors/+/imu", "key_level": 1, "fields": ["a", "b"], "seq": "n", "qos": 1, "model": "add",
    "window": {"length": 4, "hop": 2},
}  # fmt: skip
AUDIO = {"name": "audio", "topic": "mic/#", "fields": ["v"], "model": "add", "window": {"length": 8, "hop": 8}}


def make(folder: Path, *streams: dict[str, Any], models: tuple[str, ...] = ("add",)) -> Config:
    body = {
        "device": "box",
        "broker": {"url": "mqtt://127.0.0.1"},
        "models": [{"name": name, "bundle": name} for name in models],
        "streams": streams,
    }
    return configuration.loads(json.dumps(body), "edged.yaml", folder)


def test_the_only_stream_is_recorded_and_its_bundle_names_the_array(tmp_path: Path) -> None:
    """Nothing has to be said: topic and QoS are the stream's, name and shape the model's."""
    tinymodel.write_add_bundle(tmp_path / "add", 8)
    found = plan.make(make(tmp_path, IMU), Wish())
    spec = plan.bundle.read(tmp_path / "add").signature.inputs[0]
    assert (found.subscription.filter, found.subscription.qos, found.topic) == ("sensors/+/imu", 1, "sensors/+/imu")
    assert isinstance(found.source, Windows)
    assert (found.names, found.stream, found.notes) == ((spec.name,), "imu", ())


def test_without_a_bundle_the_window_itself_is_the_shape(tmp_path: Path) -> None:
    """The first calibration of a model comes before its bundle: a note says so, unless a name or a shape is given."""
    config = make(tmp_path, IMU)
    found = plan.make(config, Wish())
    assert found.names == (plan.UNNAMED,)
    assert "the bundle of add cannot be read" in found.notes[0]
    assert "[1, 4, 2]" in found.notes[0]
    for wish in (Wish(name="x"), Wish(stream="imu", shapes={"x": (1, 8)})):
        named = plan.make(config, wish)
        assert (named.names, named.notes) == (("x",), ())


def test_a_topic_may_be_narrower_or_wider_than_the_stream(tmp_path: Path) -> None:
    """The subscription is the person's, and only what the stream takes counts among it."""
    config = make(tmp_path, IMU, AUDIO)
    for topic, stream in (("sensors/a/imu", "imu"), ("sensors/#", "imu"), ("mic/left", "audio")):
        found = plan.make(config, Wish(topic=topic))
        assert (found.subscription.filter, found.stream) == (topic, stream)
    assert plan.make(config, Wish(topic="sensors/#")).topic == "sensors/+/imu"


def test_requests_to_a_model_are_recorded_as_its_bundle_reads_them(tmp_path: Path) -> None:
    """--model alone: its request topics, every codec a client may use."""
    tinymodel.write_add_bundle(tmp_path / "add", 8)
    found = plan.make(make(tmp_path, IMU), Wish(model="add"))
    assert isinstance(found.source, Requests)
    assert (found.subscription.filter, found.stream) == ("edged/v1/dev/box/req/add/#", "")
    assert found.source.facts == {"x": (np.dtype(np.float32), (1, 8))}
    images = Wish(topic="cam/+", codec="png")
    with pytest.raises(UsageError, match="png needs a bundle that says how an image becomes the input"):
        plan.make(make(tmp_path, IMU), images)


def test_quantized_clients_are_a_note(tmp_path: Path) -> None:
    """What int8 clients send cannot show values beyond the old model's range."""
    tinymodel.write_int8_bundle(tmp_path / "add", io="quantized")
    (note,) = plan.make(make(tmp_path), Wish(model="add")).notes
    assert "recorded as its limits" in note


def test_payloads_without_a_bundle_need_a_shape_unless_they_say_theirs(tmp_path: Path) -> None:
    """npy carries its own; json and raw do not."""
    config = make(tmp_path)
    assert isinstance(plan.make(config, Wish(topic="t", codec="npy")).source, Arrays)
    made = plan.make(config, Wish(topic="t", codec="raw", shapes={"x": (1, 2)}, dtype="uint8"))
    assert (made.names, isinstance(made.source, Payloads)) == (("x",), True)
    with pytest.raises(UsageError, match=r"--shape: is needed: the bundle of add cannot be read"):
        plan.make(config, Wish(topic="t", codec="json"))


@pytest.mark.parametrize(
    ("wish", "error", "says"),
    [
        (Wish(), UsageError, "which of imu, audio"),
        (Wish(stream="imo"), UsageError, r"no stream is called 'imo' \(did you mean 'imu'\?\)"),
        (Wish(topic="a/#/b"), UsageError, "'#' may only be the last level"),
        (Wish(topic="other/x"), UsageError, "no stream of the configuration takes 'other/x'"),
        (Wish(topic="other/x", stream="imu"), UsageError, "no stream of the configuration takes 'other/x'"),
        (Wish(stream="imu", model="add"), UsageError, "does not go with --codec and --model"),
        (Wish(codec="json"), UsageError, "--topic: is not given"),
        (Wish(model="ad"), UsageError, r"no model is called 'ad' \(did you mean 'add'\?\)"),
        (Wish(topic="t", codec="jsno"), UsageError, r"unknown codec 'jsno' \(did you mean 'json'\?\)"),
        (Wish(topic="t", codec="json"), UsageError, "which of the models add, two is not said"),
        (Wish(topic="t", codec="raw", shapes={"x": (1 << 20, 1 << 20)}), UsageError, "--shape: .* elements"),
        (Wish(stream="imu", shapes={"x": (1, 9)}), ConfigError, "streams.imu: .*are 8 values, but input x of model"),
        (Wish(stream="imu", shapes={"x": (1, 8), "z": (1, 8)}), UsageError, "a stream feeds one input"),
        (Wish(stream="imu", name="y"), UsageError, "--input: 'y' is a name that `edged convert --eval` takes for lab"),
        (Wish(topic="t", shapes={"a": (1,), "labels": (1,)}), UsageError, "--shape: 'labels' is a name that"),
        (Wish(stream="imu", name="\udcff"), UsageError, "--input: .* cannot be the name of an array"),
        (Wish(stream="imu", name="x", shapes={"z": (1, 8)}), UsageError, "--input: and --shape both name the array"),
        (Wish(stream="imu", dtype="int8"), UsageError, "--dtype: says what payloads of --shape hold: windows are"),
        (Wish(stream="imu", shapes={"": (1, 8)}, dtype="int8"), UsageError, "--dtype: says what payloads of --shape"),
        (Wish(topic="t", codec="npy", dtype="int8"), UsageError, "--dtype: needs --shape"),
        (Wish(model="nope", shapes={"x": (1, 8)}), UsageError, "no model is called 'nope'"),
        (Wish(topic="t", model="nope", shapes={"x": (1, 8)}), UsageError, "no model is called 'nope'"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(tmp_path: Path, wish: Wish, error: type[EdgedError], says: str) -> None:
    """Each in one line that names the option, before a connection is made."""
    with pytest.raises(error, match=says):
        plan.make(make(tmp_path, IMU, AUDIO, models=("add", "two")), wish)


def test_no_option_is_without_effect(tmp_path: Path) -> None:
    """A name for an input that the bundle names: told, unless it is that name."""
    tinymodel.write_add_bundle(tmp_path / "add", 8)
    with pytest.raises(UsageError, match=r"--input: model add names its inputs itself: x \(leave it out\)"):
        plan.make(make(tmp_path), Wish(model="add", name="z"))
    assert plan.make(make(tmp_path), Wish(model="add", name="x")).names == ("x",)


def test_a_configuration_without_streams_says_what_to_do(tmp_path: Path) -> None:
    """The hint names both other ways."""
    with pytest.raises(UsageError, match=r"has no stream .*--shape 1,100,6 records payloads, --model NAME"):
        plan.make(make(tmp_path), Wish())
