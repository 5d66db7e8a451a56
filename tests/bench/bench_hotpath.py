"""The daemon beside what it cannot beat: echoes on the same transport, and the script that everyone writes.

python tests/bench/bench_hotpath.py [--json] [--repeats 5] [--seconds 1] [--only tiny,image,large] [--cpus N]

One request in flight from a C requester through stock mosquitto, MQTT 5 with the same properties and QoS on both
sides. `hop` is paho's echo that hands each request to a second thread, as any daemon with a thread for inference must;
`callback` answers on the network thread; `C` is the same on libmosquitto. An echo sends as many bytes back as the model
does. The requester speaks MQTT 3.1.1 to the script, which knows nothing else. All run interleaved; a figure is the
median over the repeats, taken again when others used the machine. `cpu`: µs of the responder per answer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import models  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.daemons import DEVICE, DaemonProcess  # noqa: E402

from edged import bundle  # noqa: E402
from edged.broker import EmbeddedBroker  # noqa: E402
from edged.bundle import MODEL, Bundle  # noqa: E402
from edged.engines import tflite_runtime  # noqa: E402

STOCK = ("set_tcp_nodelay false",)
REPLY = "edged/v1/resp/bench/1"
# What has to be met: (case, figure, beside whom, at most so many times).
LIMITS = {
    "tiny": (("p50_us", "hop", 1.15), ("p99_us", "hop", 1.3), ("responder_us", "hop", 1.2)),
    "image": (("beyond_p50_us", "hop", 1.1), ("beyond_cpu_us", "script", 0.7)),
    "large": (("beyond_cpu_us", "script", 0.5),),
}


class Case:
    """One model at one QoS: who is asked, and how."""

    def __init__(self, name: str, loaded: Bundle, qos: int, folder: Path, args: argparse.Namespace) -> None:
        self.name, self.loaded, self.qos, self.folder, self.args = name, loaded, qos, folder, args
        self.payload = models.payload(loaded, folder / f"{name}.payload")
        self.size = self.payload.stat().st_size
        self.reply = sum(o.elements * o.wire_dtype.itemsize for o in loaded.manifest.outputs)

    def ask(self, broker: EmbeddedBroker, pid: int, topic: str, reply: str = REPLY, v5: int = 1) -> peers.Figures:
        return peers.with_cpu(pid, lambda: peers.load(
            self.folder, port=broker.port, request=topic, reply=reply, v5=v5, qos=self.qos, file=self.payload,
            seconds=self.args.seconds, least=100, longest=6 * self.args.seconds,
        ))  # fmt: skip

    @contextmanager
    def responders(self, broker: EmbeddedBroker) -> Iterator[dict[str, Callable[[], peers.Figures]]]:
        """Everybody who answers, started; each as a call that measures it."""
        with ExitStack() as stack:
            echoes: dict[str, list[Any]] = {
                "hop": peers.python("echo.py", "hop"),
                "callback": peers.python("echo.py", "callback"),
                "C": [self.folder / "echo"],
            }
            found = {"edged": self._daemon(stack, broker)}
            for name, command in echoes.items():
                topic = f"echo/{name}/{self.name}{self.qos}"
                words = (broker.port, topic, self.qos, self.reply)
                process = stack.enter_context(peers.running([*command, *map(str, words)]))
                found[name] = partial(self.ask, broker, process.pid, topic)
            found["script"] = self._script(stack, broker)
            yield found

    def _daemon(self, stack: ExitStack, broker: EmbeddedBroker) -> Callable[[], peers.Figures]:
        model: dict[str, Any] = {"name": "m", "bundle": str(self.loaded.path), "deadline_ms": 60_000}
        if self.args.cpus is not None:
            model["cpus"] = [self.args.cpus]
        config = {"models": [model], "metrics": {"interval_s": 10}}
        daemon = stack.enter_context(DaemonProcess(self.folder / f"d{self.name}{self.qos}", broker.port, config))
        daemon.ready(120)
        topic = f"edged/v1/dev/{DEVICE}/req/m/c/bench"
        return partial(self.ask, broker, daemon.process.pid, topic)

    def _script(self, stack: ExitStack, broker: EmbeddedBroker) -> Callable[[], peers.Figures]:
        model = self.folder / f"{self.name}.tflite"
        model.write_bytes(self.loaded.files[MODEL])
        prefix = f"script/{self.name}{self.qos}"
        runtime = tflite_runtime.installed()[0].name
        command = peers.python("script.py", runtime, model, "raw", broker.port, prefix, self.qos)
        process = stack.enter_context(peers.running(command))
        return partial(self.ask, broker, process.pid, f"{prefix}/in", f"{prefix}/out", 0)


def invoke_us(loaded: Bundle, seconds: float) -> dict[str, float]:
    """P50 of the bare invoke, and its CPU time, in µs: what nobody can go below."""
    interpreter = tflite_runtime.installed()[0].module().Interpreter(model_content=loaded.model, num_threads=1)
    interpreter.allocate_tensors()
    taken, end, cpu = [], time.perf_counter() + seconds, time.thread_time_ns()
    while time.perf_counter() < end:
        started = time.perf_counter_ns()
        interpreter.invoke()
        taken.append(time.perf_counter_ns() - started)
    return {"p50": float(np.median(taken)) / 1000, "cpu": (time.thread_time_ns() - cpu) / len(taken) / 1000}


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """The figures of each responder, and of the model by itself."""
    with EmbeddedBroker("mosquitto", lines=STOCK) as broker, case.responders(broker) as asked:
        for ask in asked.values():
            ask()  # once for nothing: caches, first-time imports
        bare: list[dict[str, float]] = []

        def floor() -> peers.Figures:
            bare.append(invoke_us(case.loaded, case.args.seconds / 4))
            return dict(bare[-1])

        runs = peers.interleaved({**asked, "invoke": floor}, repeats)
    floors = runs.pop("invoke")
    for found in runs.values():
        for run, alone in zip(found, floors, strict=True):
            is_model = found in (runs["edged"], runs["script"])
            run["beyond_p50_us"] = run.get("p50_us", np.nan) - (alone["p50"] if is_model else 0)
            run["beyond_cpu_us"] = run.get("responder_us", np.nan) - (alone["cpu"] if is_model else 0)
    return {"runs": runs, "invoke": floors, "bytes": case.size, "qos": case.qos}


def judged(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The ratios that are asked for, with the limits of those that have one."""
    rows, limits = [], {(figure, beside): limit for figure, beside, limit in LIMITS[name]}
    for figure in ("p50_us", "p99_us", "responder_us", "beyond_p50_us", "beyond_cpu_us"):
        for beside in ("hop", "callback", "C", "script"):
            mine, other = (peers.median(found["runs"][who], figure) for who in ("edged", beside))
            limit = limits.get((figure, beside))
            if limit is not None or (name == "tiny" and not figure.startswith("beyond")):
                rows.append({"figure": figure, "beside": beside, "ratio": round(mine / other, 3), "limit": limit})
    return rows


def cases(folder: Path, args: argparse.Namespace) -> Iterator[Case]:
    wanted = args.only.split(",")
    if "tiny" in wanted:
        loaded = bundle.read(tinymodel.write_add_bundle(folder / "tiny", 16))
        yield Case("tiny", loaded, 0, folder, args)
        yield Case("tiny", loaded, 1, folder, args)
    if "image" in wanted:
        yield Case("image", models.needed(folder), 0, folder, args)
    if "large" in wanted:
        yield Case("large", models.write_slice_bundle(folder / "large", 602_112 // 4), 0, folder, args)


def show(results: Sequence[dict[str, Any]]) -> None:
    for result in results:
        _show(result["case"], result, result["ratios"])


def _show(name: str, found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    print(f"\n{name}, {found['bytes']} B, QoS {found['qos']}")
    print(f"{'':10}{'P50 µs':>24}{'P99 µs':>28}{'cpu µs':>24}")
    for who, runs in found["runs"].items():
        cells = [peers.spread(runs, key) for key in ("p50_us", "p99_us", "responder_us")]
        print(f"{who:10}{cells[0]:>24}{cells[1]:>28}{cells[2]:>24}")
    alone = found["invoke"]
    print(f"{'invoke':10}{peers.spread(alone, 'p50'):>24}{'':>28}{peers.spread(alone, 'cpu'):>24}")
    for row in rows:
        limit = row["limit"]
        told = "" if limit is None else f": {report.verdict(row['ratio'], limit)}"
        print(f"  {row['figure']} / {row['beside']}: {row['ratio']:.2f}{told}")


def main() -> int:
    parser = report.options(__doc__, repeats=5, seconds=1.0, only="tiny,image,large")
    parser.add_argument("--cpus", type=int, help="pin the daemon's model to this CPU")
    args = parser.parse_args()
    report.needs("gcc", "mosquitto")
    facts, results = report.facts(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers.build(folder)
        for case in list(cases(folder, args)):  # all there is to lack is found before anything is measured
            found = measure(case, args.repeats)
            results.append({"case": case.name, **found, "ratios": judged(case.name, found)})
    report.tell(args, facts, {"cases": results}, lambda: show(results))
    return 0


if __name__ == "__main__":
    report.run(main)
