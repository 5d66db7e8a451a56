"""A worker with everything it needs around it, and no transport: requests go in at the router."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support import tinymodel
from support.brokers import eventually
from support.requests import Inbox

from edged import bundle
from edged.admission import Admission, Bounds, Sweeper
from edged.affinity import ThreadPolicy
from edged.engines.base import Engine
from edged.figures import ModelFigures
from edged.router import Router
from edged.worker import ModelState, OneByOne, Server, Worker, WorkerPlan

BOUNDS = {"max_requests": 64, "max_bytes": 1 << 20, "overflow": "reject"}


class WorkerRig:
    """One model `m` (float32 [1, 3] in and out) served by the engine that `open_engine` returns, which has `rows`."""

    def __init__(
        self, directory: Path, open_engine: Callable[[], Engine], *, warmup: int = 0,
        server: Callable[[Worker, Engine], Server] = OneByOne, rows: int = 1, **bounds: object,
    ) -> None:  # fmt: skip
        specs = ((tinymodel.spec("x", (rows, 3)),), (tinymodel.spec("y", (rows, 3)),))
        manifest = bundle.Manifest(1, "m", 4, {}, "serving_default", *specs)
        bundle.write(directory / "m", manifest, {bundle.MODEL: b"not loaded here"})
        self.inbox, self.router, self.states = Inbox(), Router(), []
        self.sweeper = Sweeper(self.router.fail)
        admission = Admission(Bounds(**{**BOUNDS, **bounds}), self.sweeper, self.router.fail)  # type: ignore[arg-type]
        plan = WorkerPlan(
            "m", bundle.read(directory / "m"), lambda _nudge, _note: open_engine(), ThreadPolicy(), warmup, server,
            bundle.Signature((tinymodel.spec("x", (1, 3)),), (tinymodel.spec("y", (1, 3)),)),
        )  # fmt: skip
        self.worker = Worker(plan, admission, ModelFigures(), lambda worker: self.states.append(worker.state))
        self.router.serve({"m": self.worker})
        self.sweeper.start()

    def start(self) -> WorkerRig:
        """Start the worker and wait until it is ready or failed."""
        self.worker.start()
        eventually(lambda: self.worker.state is not ModelState.STARTING, "the worker starts")
        return self

    def stop(self) -> None:
        """End the threads."""
        self.worker.stop(5)
        self.sweeper.stop()
