"""Which runtime serves a bundle, decided by trying: each candidate loads it in a child process before the daemon does.

A good verdict is kept in the state directory under (model sha256, runtime and version, delegate, threads), so that
only the first start with a new bundle, or with a new runtime, pays for the child.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edged import childprocess
from edged.bundle import Bundle
from edged.engines.tflite_runtime import Runtime
from edged.errors import UnavailableError

if TYPE_CHECKING:
    from subprocess import Popen

log = logging.getLogger(__name__)

TIMEOUT_S = 120.0
FILE = "trials.json"
# Memory that was short a moment ago may be there now; a model that needs too much is refused after the last pause.
PAUSES_S = (0.5, 2.0)


@dataclass(frozen=True)
class Verdict:
    """What a trial found. p50_us, p99_us: one invoke, after warm-up; load_ms: construction and allocation."""

    ok: bool
    reason: str = ""
    p50_us: float = 0.0
    p99_us: float = 0.0
    load_ms: float = 0.0


class Trials:
    """The verdicts known on this machine, kept in `state_dir/trials.json`."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / FILE
        self._known = _read(self._file)
        # One trial at a time: two that measure side by side would measure each other.
        self._lock = threading.Lock()
        self._child: Popen[bytes] | None = None
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the child that runs now, if one does, and start no other. Any thread."""
        self._stopped.set()
        child = self._child
        if child is not None:
            child.kill()

    def verdict(self, bundle: Bundle, runtime: Runtime, delegate: str, threads: int) -> Verdict:
        """Return the kept verdict, or try now in a child process and keep what it says."""
        key = f"{bundle.model_sha256} {_golden_sha256(bundle)} {runtime.name} {runtime.version} {delegate} {threads}"
        if key in self._known:  # without the lock: a known bundle does not wait for another one's trial
            return self._known[key]
        with self._lock:
            if key not in self._known:
                log.info("trying %s on %s (first start with it)", bundle.manifest.name, runtime.name)
                self._known[key] = self._run(bundle, runtime, delegate, threads)
                self._write()
            return self._known[key]

    def choose(self, bundle: Bundle, candidates: Sequence[Runtime], delegate: str, threads: int) -> Runtime:
        """Return the fastest candidate that loads the bundle and reproduces its golden samples.

        Raises UnavailableError with the reason of each when none does.
        """
        verdicts = {runtime: self.verdict(bundle, runtime, delegate, threads) for runtime in candidates}
        fit = [runtime for runtime, verdict in verdicts.items() if verdict.ok]
        if not fit:
            reasons = "; ".join(f"{runtime.name}: {verdict.reason}" for runtime, verdict in verdicts.items())
            raise UnavailableError(str(bundle.path), "no runtime here can serve it", reasons)
        for runtime, verdict in verdicts.items():
            if not verdict.ok:
                log.warning("%s cannot serve %s: %s", runtime.name, bundle.manifest.name, verdict.reason)
        return min(fit, key=lambda runtime: verdicts[runtime].p50_us)

    def _run(self, bundle: Bundle, runtime: Runtime, delegate: str, threads: int) -> Verdict:
        """Try once, and again after each pause while it is SIGKILL that ends the child: that is no verdict."""
        args = [str(bundle.path.absolute()), bundle.model_sha256, runtime.name, delegate, str(threads)]
        pauses = iter(PAUSES_S)
        while True:
            try:
                return self._ask(args)
            except childprocess.NoAnswerError as exc:
                pause_s = next(pauses, None) if exc.code == -signal.SIGKILL else None
                if pause_s is None or self._stopped.wait(pause_s):
                    what = "was stopped" if self._stopped.is_set() else str(exc)
                    return Verdict(ok=False, reason=f"the process that loaded it {what}")
                log.warning("the process that loaded %s %s; trying again", bundle.manifest.name, exc)

    def _ask(self, args: Sequence[str]) -> Verdict:
        with childprocess.start_answering("edged.engines.tflite_trial", *args) as child:
            self._child = child
            if self._stopped.is_set():
                child.kill()
            return Verdict(**childprocess.answer(child, TIMEOUT_S))

    def _write(self) -> None:
        part = self._file.with_suffix(".part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # A refusal may have been the moment's fault (memory, a time-out): only good verdicts outlive the process.
            good = {key: asdict(verdict) for key, verdict in self._known.items() if verdict.ok}
            part.write_text(json.dumps(good, indent=1))
            part.replace(self._file)
        except OSError as exc:
            log.warning("%s cannot be written: %s; the next start tries again", self._file, exc)


def _golden_sha256(bundle: Bundle) -> str:
    entry = bundle.manifest.files.get("golden.npz")
    return "-" if entry is None else entry.sha256


def _read(file: Path) -> dict[str, Verdict]:
    try:
        known = json.loads(file.read_text())
        return {key: Verdict(**verdict) for key, verdict in known.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as exc:
        log.warning("%s cannot be read: %s; starting afresh", file, exc)
        return {}
