"""From wishes to bundles that serve: fetch, verify, load, warm, switch, remember; each step told, failures harmless.

Rules it keeps:
- The last message counts. It ends what is under way for another wish, or for a model that it no longer names.
- What serves already is not touched: the same sha256, or the same content, does nothing. But a model that failed is
  opened anew.
- A wish that failed is not tried again until a message with another `rev` asks for it, or the next start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edged import assembly, bundle
from edged.assembly import Parts
from edged.bundle import Bundle
from edged.config import Config, ModelConfig
from edged.control.desired import Desired, Wish
from edged.control.reported import Reported
from edged.deployed import FILE, Entry, Kept, content_of
from edged.errors import BadDataError, EdgedError, UnavailableError
from edged.fetch import Order, StoppedError, fetched, shown
from edged.swap import AbandonedError, Swapper
from edged.worker import ModelState

log = logging.getLogger(__name__)

IDLE_S = 30.0


@dataclass(frozen=True)
class _Task:
    rev: int
    wish: Wish


class Updates:
    """The wishes of one device. One thread.

    look: called often while something takes long; it hands new messages to `take`. pause: waits, for a look's time.
    """

    def __init__(
        self, config: Config, parts: Parts, reported: Reported, swapper: Callable[[Callable[[], bool]], Swapper],
        look: Callable[[], bool], pause: Callable[[], None],
    ) -> None:  # fmt: skip
        self._config, self._parts, self._reported = config, parts, reported
        self._models = {model.name: model for model in config.models}
        self._swapper, self._look, self._pause = swapper, look, pause
        self._desired: Desired | None = None
        self._done: dict[str, _Task] = {}
        self._tell_start()

    def take(self, desired: Desired) -> None:
        """Make these the wishes from now on."""
        self._desired = desired

    def turn(self) -> bool:
        """Do what is to be done for one model; returns whether there was anything."""
        task = self._next()
        if task is None:
            return False
        name = task.wish.name
        row = self._reported.rows[name]
        before = (row.rev, row.wanted)
        row.rev, row.wanted = task.rev, {"version": task.wish.version, "sha256": task.wish.sha256}
        try:
            state, told = self._tried(task)
            self._done[name] = task
        except (AbandonedError, StoppedError):
            log.info("model %s: the update to %.12s was given up: it is no longer wanted", name, task.wish.sha256)
            row.rev, row.wanted = before
            state, told = row.ended
        self._parts.deployed.prune(worker.plan.bundle.path for worker in self._parts.workers.values())
        self._reported.end(name, state, told)
        return True

    def _tried(self, task: _Task) -> tuple[str, str]:
        """Return how it ended, and what is wrong."""
        try:
            return "READY", self._served(task)
        except (AbandonedError, StoppedError):
            raise
        except (EdgedError, OSError) as exc:
            version = self._parts.workers[task.wish.name].plan.bundle.manifest.version
            log.warning("model %s: not updated, version %d serves on: %s", task.wish.name, version, exc)
            return "FAILED", str(exc)
        except Exception as exc:  # top of a job: the next one must find the thread alive
            log.exception("model %s: not updated", task.wish.name)
            return "FAILED", str(exc) or type(exc).__name__

    def _next(self) -> _Task | None:
        if self._desired is None:
            return None
        tasks = [_Task(self._desired.rev, wish) for wish in self._desired.models]
        return next((task for task in tasks if self._done.get(task.wish.name) != task), None)

    def _wanted(self, task: _Task) -> bool:
        """Whether to go on with it; takes new messages meanwhile."""
        if not self._look():
            return False
        wishes = () if self._desired is None else self._desired.models
        return task.wish in wishes

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _served(self, task: _Task) -> str:
        """Let it serve; returns what is wrong all the same, mostly "". Raises for what keeps the old one."""
        wish, name = task.wish, task.wish.name
        if self._is_overruled(task):
            what = "the configuration was changed after this was applied"
            raise BadDataError(f"rev {task.rev}", what, "send it with another rev to apply it again")
        same = self._reported.rows[name].sha256 == wish.sha256
        if not same or self._state(name) is ModelState.STARTING:
            self._reported.step(name, "QUEUED")
        while self._state(name) is ModelState.STARTING:
            self._require(task)
            self._pause()
        if same and self._state(name) is not ModelState.FAILED:
            return self._remembered(task)
        return self._swapped(task, self._parts.workers[name].plan.bundle if same else self._read(task))

    def _state(self, name: str) -> ModelState:
        return self._parts.workers[name].state

    def _swapped(self, task: _Task, new: Bundle) -> str:
        name, row = task.wish.name, self._reported.rows[task.wish.name]
        old = self._parts.workers[name].plan.bundle
        if new.manifest != old.manifest or self._state(name) is ModelState.FAILED:
            swapper, model = self._swapper(lambda: self._wanted(task)), self._models[name]

            def note(step: str, text: str) -> None:
                self._reported.step(name, step, text)

            selection = swapper.choose(new, assembly.wish(model, new, self._config.models), note)
            swapper.swap(name, new, selection, note)
            if row.sha256 != task.wish.sha256:
                row.previous = {"version": old.manifest.version, "sha256": row.sha256}
            log.info("model %s: version %d serves, in place of %d", name, new.manifest.version, old.manifest.version)
        row.sha256 = task.wish.sha256
        return self._remembered(task, new)

    def _read(self, task: _Task) -> Bundle:
        """Return the bundle, fetched and verified, and found to be one that may take the place of what serves."""
        wish = task.wish
        if why := self._parts.deployed.own():
            raise UnavailableError(f"rev {task.rev}", why)
        new = self._lying(wish)
        if new is None:
            path = self._fetched(task)
            self._reported.step(wish.name, "VERIFYING")
            new = bundle.read(path)
        self._require(task)
        _fitting(self._config, wish, new, self._parts.workers[wish.name].plan.bundle)
        return new

    def _lying(self, wish: Wish) -> Bundle | None:
        """Return a bundle of this sha256 that is kept from before, verified again."""
        for path in (self._parts.deployed.folder / name for name in (wish.sha256, f"{wish.sha256}.tar")):
            if content_of(path) == wish.sha256:
                self._reported.step(wish.name, "VERIFYING")
                with contextlib.suppress(BadDataError):  # it is fetched anew
                    return bundle.read(path)
        return None

    def _fetched(self, task: _Task) -> Path:
        wish, updates = task.wish, self._config.updates
        self._reported.step(wish.name, "DOWNLOADING")
        source = unquote(urlsplit(wish.url).path) if wish.url.startswith("file:") else wish.url
        idle_s = min(IDLE_S, updates.timeout_s)
        order = Order(source, wish.sha256, self._parts.deployed.folder, updates.max_bytes, idle_s)
        log.info("model %s: fetching %s", wish.name, shown(source))

        def progress(count: int, text: str) -> None:
            self._reported.progress(wish.name, count, text)

        return fetched(order, updates.timeout_s, lambda: self._wanted(task), progress)

    def _require(self, task: _Task) -> None:
        if not self._wanted(task):
            raise AbandonedError

    # --- what is remembered -------------------------------------------------------------------------------------------

    def _remembered(self, task: _Task, new: Bundle | None = None) -> str:
        """Remember what serves, `new` or what did before; returns why that failed, "" when it did not."""
        deployed, wish = self._parts.deployed, task.wish
        kept = deployed.entries.get(wish.name)
        current, previous = (None, None) if kept is None else (kept.current, kept.previous)
        if new is not None and new.path.parent == deployed.folder:
            serving = Kept(new.path.name, wish.sha256, new.manifest.version)
            current, previous = serving, (previous if current in (None, serving) else current)
        configured = self._models[wish.name].bundle
        entry = Entry(task.rev, wish.sha256, str(configured), content_of(configured), current, previous)
        try:
            deployed.keep(wish.name, entry)
        except OSError as exc:
            return f"serves until the next start only: {exc.filename or FILE}: {exc.strerror or exc}"
        return ""

    def _is_overruled(self, task: _Task) -> bool:
        """Whether it was applied once, and the configuration was changed since."""
        kept = self._parts.deployed.entries.get(task.wish.name)
        if kept is None or kept.current is not None:
            return False
        again = (kept.rev, kept.asked) == (task.rev, task.wish.sha256)
        return again and self._reported.rows[task.wish.name].sha256 != task.wish.sha256

    def _tell_start(self) -> None:
        """Fill in what serves since the start."""
        for name, model in self._models.items():
            row, kept = self._reported.rows[name], self._parts.deployed.entries.get(name)
            row.sha256 = _serving_sha256(self._parts, model)
            if kept is not None:
                row.rev = kept.rev
                row.previous = None if kept.previous is None else {
                    "version": kept.previous.version, "sha256": kept.previous.sha256,
                }  # fmt: skip
            if damaged := self._parts.deployed.damaged.get(name):
                row.ended = "FAILED", f"{damaged}; the configured bundle serves"  # a later wish may be given up
                row.state, row.error = row.ended


def _serving_sha256(parts: Parts, model: ModelConfig) -> str | None:
    kept = parts.deployed.entries.get(model.name)
    if kept is not None and kept.current is not None:
        return kept.current.sha256
    serving = parts.workers[model.name].plan.bundle
    content = content_of(serving.path)
    try:
        # It may have been replaced on the disk since it was read.
        return content if content and bundle.read(serving.path).manifest == serving.manifest else None
    except BadDataError:
        return None


def _fitting(config: Config, wish: Wish, new: Bundle, old: Bundle) -> None:
    """Raise BadDataError unless `new` may serve in place of `old`."""
    found, served = new.manifest, old.manifest
    if found.name != served.name:
        raise BadDataError(str(new.path), f"it is of a model {found.name!r}, not {served.name!r}")
    if wish.version not in (None, found.version):
        raise BadDataError(str(new.path), f"it is version {found.version}, not {wish.version} as desired")
    streams = [stream.name for stream in config.streams if stream.model == wish.name]
    if streams and found.inputs != served.inputs:
        what = f"its inputs are others, and the stream {streams[0]} feeds the model"
        raise BadDataError(str(new.path), what, "change the configuration instead")
