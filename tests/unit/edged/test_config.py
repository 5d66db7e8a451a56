"""The configuration: what is accepted, what is refused and how, and that nothing secret is ever shown."""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import config, topics
from edged.config import Config
from edged.config_reference import reference
from edged.config_streams import topic_problem
from edged.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
BASE = Path("/etc/edged")

GOOD = """\
device: press-07
broker: {url: "mqtts://broker.plant:8883", username: u, password_file: pw}
models:
  - name: har
    bundle: bundles/har
    threads: 2
    cpus: [1, 2]
    delegates: [cpu]
  - name: pose
    bundle: /srv/pose.tar
streams:
  - name: imu
    topic: "sensors/+/imu"
    key_level: 1
    fields: [ax, ay]
    seq: n
    time: t
    window: {length: 4, hop: 2}
    model: har
"""


def read(text: str) -> Config:
    return config.loads(text, "edged.yaml", BASE)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("auto", None),
        ("[edgetpu, cpu]", (("edgetpu", {}), ("cpu", {}))),
        ("{external: {library: libvx.so}}", (("external", {"library": "libvx.so"}),)),
        ("{external: {library: lib/vx.so}}", (("external", {"library": "/etc/edged/lib/vx.so"}),)),
        (
            "{external: {library: vx.so, options: {library: a/b}}}",
            (("external", {"library": "vx.so", "options": {"library": "a/b"}}),),
        ),
        ("{external: {library: /opt/vx.so}}", (("external", {"library": "/opt/vx.so"}),)),
        ("[{edgetpu: {device: usb}}, cpu]", (("edgetpu", {"device": "usb"}), ("cpu", {}))),
    ],
)
def test_delegates_in_every_form(written: str, wanted: object) -> None:
    """A list, a mapping, a list of both, in the order given; a library with a slash is relative to the file."""
    model = read(GOOD.replace("delegates: [cpu]", f"delegates: {written}")).models[0]
    assert model.wanted == wanted


def wrong(old: str, new: str, text: str = GOOD) -> list[str]:
    """What is said when `old` in the good configuration is `new` instead."""
    assert text.count(old) == 1, old
    with pytest.raises(ConfigError) as caught:
        read(text.replace(old, new))
    return str(caught.value).splitlines()


def test_the_good_one_loads_and_defaults_are_as_documented() -> None:
    """Values, defaults, and relative paths made absolute below the file's directory."""
    c = read(GOOD)
    assert c.broker.address[:3] == ("broker.plant", 8883, True)
    assert (c.broker.keepalive_s, c.broker.protocol, c.broker.session_expiry_s) == (30, "auto", 3600)
    assert c.client_id == "edged-press-07"
    assert [m.bundle for m in c.models] == [BASE / "bundles/har", Path("/srv/pose.tar")]
    assert c.broker.password_file == BASE / "pw"
    pose = c.models[1]
    assert (pose.delegates, pose.runtime, pose.threads, pose.cpus, pose.realtime) == ("auto", "auto", 1, (), "auto")
    assert (pose.queue.max_requests, pose.queue.max_bytes, pose.queue.overflow) == (64, 67_108_864, "reject")
    assert (pose.deadline_ms, pose.warmup) == (1000, 10)
    stream = c.streams[0]
    assert (stream.reply, stream.max_keys, stream.qos, stream.deadline_ms, stream.max_gap_s) == (
        "json",
        1024,
        0,
        None,
        None,
    )
    assert (c.metrics.interval_s, c.drain_timeout_s, c.log_level) == (10.0, 5.0, "info")
    assert (c.replies.memory_bytes, c.replies.memory_s) == (16_777_216, 120.0)
    assert (c.status.stuck_factor, c.status.stuck_floor_ms) == (20.0, 5000)


@pytest.mark.parametrize(
    ("old", "new", "path", "part"),
    [
        ("device: press-07", "device: a/b", "device", "one topic level"),
        ("device: press-07", "devise: press-07", "device", "required key is missing"),
        ("mqtts://broker.plant:8883", "http://broker", "broker.url", "expected mqtt://host[:port]"),
        ("mqtts://broker.plant:8883", "mqtt://b:70000", "broker.url", "port 70000"),
        ("mqtts://broker.plant:8883", "mqtt://b/topic", "broker.url", "expected mqtt://"),
        ("mqtts://broker.plant:8883", "mqtts://a..b", "broker.url", "cannot be a host's name"),
        ("mqtts://broker.plant:8883", "mqtts://" + "a" * 64, "broker.url", "cannot be a host's name"),
        ("username: u, ", "", "broker.username", "needs a username"),
        ("username: u", "username: ''", "broker.username", "1 to 65535 bytes"),
        ("password_file: pw", "password_file: pw, password_env: PW", "broker.password_env", "not both"),
        ("password_file: pw", "cert_file: c", "broker.key_file", "both cert_file and key_file"),
        ("mqtts://broker.plant:8883\"", "mqtt://b\", ca_file: ca.pem", "broker.ca_file", "mqtts://"),
        ("threads: 2", "threads: 3", "models[0].threads", "3 threads on 2 CPU"),
        ("cpus: [1, 2]", "cpus: [1, 1]", "models[0].cpus", "given twice"),
        ("cpus: [1, 2]", "cpus: [1, -2]", "models[0].cpus[1]", "at least 0"),
        ("delegates: [cpu]", "delegates: []", "models[0].delegates", "must not be empty"),
        ("delegates: [cpu]", "delegates: {}", "models[0].delegates", "must not be empty"),
        ("delegates: [cpu]", "delegates: [{}]", "models[0].delegates", "names no delegate"),
        ("delegates: [cpu]", "delegates: [cpu, warp]", "models[0].delegates[1]", "unknown delegate 'warp'"),
        ("delegates: [cpu]", "delegates: {cpu: {cores: 2}}", "models[0].delegates.cpu", "unknown option 'cores'"),
        ("delegates: [cpu]", "delegates: [external]", "models[0].delegates[0]", "library must name a file"),
        ("delegates: [cpu]", "delegates: [edgetpu: {device: usb9x}]", "models[0].delegates[0]", "edgetpu: "),
        ("delegates: [cpu]", "delegates: {cpu: {xnnpack: .nan}}", "models[0].delegates.cpu", "must be a finite number"),
        (
            "delegates: [cpu]",
            "delegates: [external: {library: /l.so, options: {a: [1, .inf]}}]",
            "models[0].delegates[0]",
            "option 'a' must be a finite number, got inf",
        ),
        ("delegates: [cpu]", "delegates: {external: 3}", "models[0].delegates.external", "expected a mapping"),
        ("threads: 2", "threads: many", "models[0].threads", "auto or a whole number"),
        ("threads: 2", "failover: {backoff_s: 9, backoff_max_s: 3}", "models[0].failover.backoff_max_s", "at least"),
        ("name: pose", "name: har", "models[1].name", "name of another one"),
        ("name: pose", "name: po/se", "models[1].name", "one topic level"),
        ("model: har", "model: hat", "streams[0].model", "did you mean 'har'?"),
        ("key_level: 1", "key_level: 0", "streams[0].key_level", "always 'sensors'"),
        ("key_level: 1", "key_level: 3", "streams[0].key_level", "levels 0 to 2"),
        ("sensors/+/imu", "sensors/#/imu", "streams[0].topic", "last level"),
        ("sensors/+/imu", "sensors/a+/imu", "streams[0].topic", "stands alone"),
        ("sensors/+/imu", "$share/g/+/imu", "streams[0].topic", "shared subscription"),
        ("sensors/+/imu", "#", "streams[0].topic", "endless loop"),
        ("sensors/+/imu", "edged/+/dev/+/out/imu/+", "streams[0].topic", "endless loop"),
        ("sensors/+/imu", "edged/+/dev/+/req/#", "streams[0].topic", "the device's requests"),
        ("sensors/+/imu", "edged/+/dev/+/status", "streams[0].topic", "the device's status"),
        ("sensors/+/imu", "+/+/dev/press-07/metrics", "streams[0].topic", "the device's metrics"),
        ("hop: 2", "hop: 5", "streams[0].window.hop", "at most the length"),
        ("hop: 2", "hop: 0", "streams[0].window.hop", "at least 1"),
        ("fields: [ax, ay]", "fields: [ax, ax]", "streams[0].fields", "'ax' is given twice"),
        ("fields: [ax, ay]", "fields: [n, t]", "streams[0].fields", "nothing beside seq and time"),
        ("time: t", "time: n", "streams[0].time", "same value"),
        ("time: t", "max_gap_s: 1", "streams[0].max_gap_s", "needs time"),
        ("time: t", "decode: raw", "streams[0].decode", "no seq and no time"),
        ("time: t", "qos: 2", "streams[0].qos", "expected one of 0, 1"),
    ],
)  # fmt: skip
def test_each_rule_refuses_with_path_and_line(old: str, new: str, path: str, part: str) -> None:
    """One broken rule, one complaint, at the right key and in the right line."""
    found = wrong(old, new)
    mine = [line for line in found if f": {path}: " in line]
    assert len(mine) == 1, found
    assert part in mine[0]
    number = GOOD[: GOOD.index(old)].count("\n") + 1
    assert mine[0].startswith("edged.yaml:1:" if "devise" in new else f"edged.yaml:{number}:") or "threads" in path


def test_rules_across_sections_are_told_together_with_the_rest() -> None:
    """A stream's unknown model and a name given twice are told though other keys are wrong as well."""
    text = GOOD.replace("threads: 2", "treads: 2").replace("model: har", "model: x").replace("name: pose", "name: har")
    assert len(wrong("[ax, ay]", "7", text)) == 4


@pytest.mark.parametrize("key", ["servers: []", "prometheus: 1", "broker2: {}", "fallback: server"])
def test_what_is_not_built_yet_is_an_unknown_key(key: str) -> None:
    """A key nobody reads must not look as if it did something."""
    assert any("unknown key" in line for line in wrong("device: press-07", f"device: press-07\n{key}"))


SECRET = "hunter2"  # noqa: S105  # the bait


@pytest.mark.parametrize(
    "broker",
    [
        f'{{url: "mqtt://u:{SECRET}@host"}}',
        f'{{url: "mqtt://u:{SECRET}@b@host/x"}}',
        f"{{url: 'mqtt://h', username: u, password: {SECRET}}}",
        f'"mqtt://u:{SECRET}@host"',
        f'["mqtt://u:{SECRET}@host"]',
        f'{{url: ["mqtt://u:{SECRET}@host"]}}',
        f'{{url: "mqtt://h", keepalive_s: "mqtt://u:{SECRET}@host"}}',
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_echoed(broker: str) -> None:
    """Wherever it was written, the complaint does not repeat it."""
    with pytest.raises(ConfigError) as caught:
        read(f"device: d\nbroker: {broker}\nmodels: [{{name: m, bundle: b}}]\n")
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_passwords_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read when asked for, so the configuration itself never holds one."""
    (tmp_path / "pw").write_text(f"{SECRET}\nsecond line\n")
    from_file = config.loads(GOOD, "f", tmp_path)
    assert from_file.broker.password() == SECRET
    assert SECRET not in repr(from_file)
    from_env = read(GOOD.replace("password_file: pw", "password_env: EDGED_TEST_PW"))
    with pytest.raises(ConfigError, match="EDGED_TEST_PW is not set"):
        from_env.broker.password()
    monkeypatch.setenv("EDGED_TEST_PW", SECRET)
    assert from_env.broker.password() == SECRET
    assert read(GOOD.replace(", username: u, password_file: pw", "")).broker.password() is None
    (tmp_path / "pw").write_text("\n")
    with pytest.raises(ConfigError, match="first line is empty"):
        from_file.broker.password()
    (tmp_path / "pw").unlink()
    with pytest.raises(ConfigError, match="No such file"):
        from_file.broker.password()


def test_protocol_5_may_be_written_as_a_number() -> None:
    """`protocol: 5` is what a person writes."""
    assert read(GOOD.replace("username: u", "username: u, protocol: 5")).broker.protocol == "5"
    assert read(GOOD.replace("username: u", "username: u, protocol: 3.1.1")).broker.protocol == "3.1.1"


def test_the_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, else systemd's first, else the XDG state home, else below the home."""
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")
    assert read(GOOD + "state_dir: s\n").state_dir == BASE / "s"
    assert read(GOOD).state_dir == Path("/var/lib/a")
    monkeypatch.delenv("STATE_DIRECTORY")
    assert read(GOOD).state_dir == Path("/xdg/edged")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert read(GOOD).state_dir == Path("/home/x/.local/state/edged")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, a directory, not text: one line each; a byte-order mark is no problem."""
    with pytest.raises(ConfigError, match=r"no such file.*edged sample minimal"):
        config.load(tmp_path / "none.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path, tmp_path / "pipe.yaml", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="not a regular file"):
            config.load(path)
    (tmp_path / "latin.yaml").write_bytes("device: prüfstand".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 10\)"):
        config.load(tmp_path / "latin.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert config.load(tmp_path / "bom.yaml").models[0].bundle == tmp_path / "bundles/har"


def test_diff_tells_what_changed() -> None:
    """By name where there are names, so that a new order or a new first one is not everything changed."""
    old = read(GOOD)
    assert config.diff(old, read(GOOD)) == []
    text = GOOD.replace("threads: 2", "threads: 1").replace("name: pose", "name: face").replace("hop: 2", "hop: 4")
    text = text.replace("password_file: pw", "password_env: E").replace("[cpu]", "auto") + "log_level: debug\n"
    assert config.diff(old, read(text)) == [
        "broker.password_file: /etc/edged/pw → none",
        "broker.password_env: none → E",
        "models[har].delegates: [cpu] → auto",
        "models[har].threads: 2 → 1",
        "models[pose]: removed",
        "models[face]: added",
        "streams[imu].window.hop: 2 → 4",
        "log_level: info → debug",
    ]
    none = read(GOOD[: GOOD.index("streams:")])
    assert config.diff(none, old) == ["streams[imu]: added"]


# preprocess.yaml and postprocess.yaml are for `edged convert`.
CONFIGURATIONS = sorted(set(CONFIGS.glob("*.yaml")) - set(CONFIGS.glob("p*process.yaml")))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_every_sample_loads(path: Path) -> None:
    """What we ship is right."""
    assert config.load(path).device == "press-07"


def test_the_reference_is_the_one_the_classes_make() -> None:
    """It is generated: `python -m edged.config_reference > configs/reference.yaml` brings it up to date."""
    assert (CONFIGS / "reference.yaml").read_text() == reference()


def keys(cls: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of the configuration, walked through the types alone."""
    hints = typing.get_type_hints(cls)
    for f in dataclasses.fields(cls):
        yield f.name, f
        for tp in (hints[f.name], *typing.get_args(hints[f.name])):
            if dataclasses.is_dataclass(tp):
                yield from keys(tp, f.name)


def test_the_reference_is_yaml_throughout() -> None:
    """Python's words for truth and nothing are not those that the header names."""
    assert not re.search(r": (True|False|None)$", reference(), re.MULTILINE)
    assert "    store: false\n" in reference()


def test_the_reference_names_every_key_and_its_help() -> None:
    """No key can be added without its line and its help text."""
    text = reference()
    flat = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
    for name, f in keys(Config):
        assert re.search(rf"^ *(- )?(# *)*{name}:", text, re.MULTILINE), name
        assert f.metadata["help"] in flat, name


def test_the_reference_shows_the_defaults_and_good_examples() -> None:
    """As it stands it equals a file with the required keys only; each example commented out is a right value."""
    text = reference()
    shown = config.loads(text, "reference", BASE)
    least = """\
device: press-07
broker: {url: "mqtt://127.0.0.1:1883"}
models: [{name: har, bundle: bundles/har}]
streams:
  - {name: imu, topic: "sensors/+/imu", fields: [ax, ay, az, gx, gy, gz], window: {length: 100, hop: 50}, model: har}
"""
    assert shown == read(least)
    # Alone, some lack their partner (a certificate its key): that is all that may be wrong.
    partner = re.compile(r"needs (TLS|a username|both|time)|both cert_file")
    for off in re.findall(r"^ *# \w+: .*$", text, re.MULTILINE):
        found = complaints(text.replace(off, off.replace("# ", "", 1)))
        assert all(partner.search(line) for line in found), (off, found)


def complaints(text: str) -> list[str]:
    try:
        read(text)
    except ConfigError as exc:
        return str(exc).splitlines()
    return []


LEVEL = st.text(
    st.characters(codec="ascii", categories=["L", "N", "S", "Zs"], exclude_characters="+"), min_size=1, max_size=3
)


@given(st.lists(LEVEL | st.just("+"), min_size=1, max_size=5), st.booleans())
def test_good_filters_are_good(parts: list[str], tail: bool) -> None:
    """A filter built by the grammar is accepted, but for a shared one."""
    text = "/".join([*parts, *(["#"] if tail else [])])
    if parts[0] != "$share":
        assert topic_problem(text) is None
    assert not topics.valid_level(text) or text == parts[0]


OTHER = """\
  - name: pose
    topic: TOPIC
    fields: [x]
    model: pose
"""


@pytest.mark.parametrize("leaf", ["desired/models", "reported/+", "cmd/reload", "event/#"])
def test_streams_do_not_read_what_an_operator_asks(leaf: str) -> None:
    """Commands, wishes and what is told of them are no samples."""
    found = complaints(GOOD + OTHER.replace("TOPIC", f"edged/v1/dev/press-07/{leaf}"))
    assert len(found) == 1, found
    assert f"also matches the device's {leaf.partition('/')[0]} messages" in found[0]


@pytest.mark.parametrize(
    ("topic", "key_level", "wrong"),
    [
        ("edged/v1/dev/press-07/out/imu/+", None, "the answers of the stream 'imu'"),
        ("edged/v1/dev/+/out/imu/#", None, "the answers of the stream 'imu'"),
        ("edged/v1/dev/press-07/out/pose", None, "the stream's own answers"),
        ("edged/v1/dev/press-07/out/pose/+", 6, "the stream's own answers"),
        ("edged/v1/dev/press-08/out/imu/+", None, ""),
        ("edged/v1/dev/press-07/out/imu", None, ""),  # `imu` has keys: it never answers there
        ("edged/v1/dev/press-07/out/imu/a/b", None, ""),
    ],
)
def test_streams_do_not_feed_on_answers(topic: str, key_level: int | None, wrong: str) -> None:
    """Neither their own nor each other's: two that feed each other never stop. Another device's answers are fine."""
    text = GOOD + OTHER.replace("TOPIC", topic) + (f"    key_level: {key_level}\n" if key_level else "")
    found = complaints(text)
    assert len(found) == bool(wrong), found
    assert not wrong or (f"streams[1].topic: also matches {wrong}" in found[0] and "endless loop" in found[0])


@pytest.mark.parametrize(
    ("topic", "wrong"),
    [("sensors/+/imu", ""), ("sensors/a/imu", "overlaps"), ("sensors/#", "overlaps"), ("plant/+/imu", "")],
)
def test_streams_share_a_topic_or_nothing(topic: str, wrong: str) -> None:
    """A broker may deliver a sample once for each filter that matches, so two different ones must not overlap."""
    found = complaints(GOOD + OTHER.replace("TOPIC", topic) + ("    key_level: 1\n" if "+" in topic else ""))
    assert len(found) == bool(wrong), found
    assert not wrong or ("streams[1].topic: overlaps" in found[0] and "the same topic" in found[0])


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("metrics: {interval_s: 1e308}", "metrics.interval_s"),
        ("metrics: {interval_s: 86401}", "metrics.interval_s"),
        ("replies: {memory_s: 1e308}", "replies.memory_s"),
        ("replies: {memory_bytes: 9999999999999999999}", "replies.memory_bytes"),
        ("status: {stuck_factor: 1e308}", "status.stuck_factor"),
        ("drain_timeout_s: 1e308", "drain_timeout_s"),
    ],
)
def test_no_number_is_without_bound(line: str, path: str) -> None:
    """A figure that would overflow where it is used is refused where it is written."""
    (found,) = complaints(GOOD + line + "\n")
    assert f"{path}: must be at most" in found


@pytest.mark.parametrize(
    ("network", "model", "wrong"),
    [
        ("off", "auto", True), ("off", "nice", True), ("off", "off", False), ("nice", "fifo", True),
        ("nice", "auto", False), ("auto", "fifo", False), ("fifo", "fifo", False),
    ],
)  # fmt: skip
def test_the_network_thread_is_behind_no_model(network: str, model: str, wrong: bool) -> None:
    """All models wait for it: a priority below one of theirs is refused."""
    text = GOOD.replace("threads: 2", f"threads: 2\n    realtime: {model}") + f"\nnetwork: {{realtime: {network}}}\n"
    text = text.replace("name: pose", f"name: pose\n    realtime: {model}")
    found = [line for line in complaints(text) if "network.realtime" in line]
    assert bool(found) == wrong


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("9464", ("127.0.0.1", 9464)), ('":9464"', ("127.0.0.1", 9464)), ('"9464"', ("127.0.0.1", 9464)),
        ('"192.0.2.1:1"', ("192.0.2.1", 1)), ('"[::1]:9464"', ("::1", 9464)), ('"box.plant:9464"', ("box.plant", 9464)),
        ("0", None), ("65536", None), ('"x:y"', None), ('"host"', None), ('"host:"', None), ('":99999"', None),
    ],
)  # fmt: skip
def test_where_prometheus_finds_the_figures(written: str, address: tuple[str, int] | None) -> None:
    """A bare port is one of loopback; another address only where it is written out; nonsense is refused."""
    text = f"{GOOD}\nmetrics: {{prometheus: {written}}}\n"
    if address is None:
        assert any("metrics.prometheus" in line for line in complaints(text))
    else:
        assert read(text).metrics.address == address
