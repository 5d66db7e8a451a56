"""What is reported of a wish that is given up: what holds is what the one before it came to."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support import tinymodel

from edged import bundle
from edged.assembly import Parts
from edged.bundle import Bundle
from edged.config import BrokerConfig, Config, ModelConfig
from edged.control.desired import Desired, Wish
from edged.control.reported import Reported
from edged.control.updates import Updates
from edged.deployed import content_of
from edged.transports.base import Message
from edged.worker import ModelState


class Kept:
    """Stands for what is kept on the disk. full: nothing can be remembered; another: another daemon keeps it."""

    def __init__(self, folder: Path, *, full: bool = False, another: str = "") -> None:
        self.folder, self.entries, self.damaged = folder, dict[str, Any](), dict[str, str]()
        self._full, self._another = full, another

    def own(self) -> str:
        return self._another

    def keep(self, name: str, entry: object) -> None:
        if self._full:
            raise OSError(28, "No space left on device", "deployed.json")
        self.entries[name] = entry

    def prune(self, _paths: object) -> None: ...


class Desk:
    """The wishes for one model `m`, which serves a bundle of `folder`."""

    def __init__(self, folder: Path, kept: Kept) -> None:
        tinymodel.write_dense_bundle(folder / "dense")
        serving: Bundle = bundle.read(folder / "dense")
        self.sha256 = content_of(serving.path) or ""
        self.worker = SimpleNamespace(
            state=ModelState.READY, reason="", before=None, plan=SimpleNamespace(bundle=serving)
        )
        parts = cast("Parts", SimpleNamespace(workers={"m": self.worker}, deployed=kept))
        config = Config(
            device="box", broker=BrokerConfig(url="mqtt://x"), models=(ModelConfig(name="m", bundle=folder / "dense"),)
        )
        self.said: list[dict[str, Any]] = []
        self.next: Desired | None = None
        self.reported = Reported("box", parts, self._send)
        self.updates = Updates(config, parts, self.reported, lambda _: cast("Any", None), self._look, lambda: None)

    def _send(self, message: Message) -> bool:
        self.said.append(json.loads(bytes(message.payload))["models"]["m"])
        return True

    def _look(self) -> bool:
        """A message comes; None: the daemon stops."""
        if self.next is not None:
            self.updates.take(self.next)
        return self.next is not None

    def wish(self, rev: int, sha256: str) -> dict[str, Any]:
        """Wish for a bundle; returns what was reported last."""
        self.updates.take(Desired(rev=rev, models=(Wish(name="m", url="/nowhere", sha256=sha256),)))
        assert self.updates.turn()
        return self.said[-1]


@pytest.mark.parametrize("then", [None, Desired(rev=3, models=())], ids=["the daemon stops", "it is taken back"])
@pytest.mark.parametrize(
    ("kept", "served", "told"),
    [
        ({"another": "another daemon keeps it"}, False, ("FAILED", "rev 1: another daemon keeps it")),
        ({"full": True}, True, ("READY", "serves until the next start only: deployed.json: No space left on device")),
        ({}, True, ("READY", "")),
    ],
)
def test_a_wish_given_up_leaves_the_truth_of_the_one_before(
    tmp_path: Path, kept: dict[str, Any], served: bool, told: tuple[str, str], then: Desired | None
) -> None:
    """State, error, revision and what was wanted are those of the wish before, whatever it came to."""
    desk = Desk(tmp_path, Kept(tmp_path, **kept))
    before = desk.wish(1, desk.sha256 if served else "a" * 64)
    assert (before["state"], before["error"], before["rev"]) == (*told, 1)
    desk.worker.state, desk.next = ModelState.STARTING, then  # so that the next one has to wait, and looks
    desk.wish(2, "b" * 64)
    assert [step["rev"] for step in desk.said[-2:]] == [2, 1]
    desk.worker.state = ModelState.READY
    desk.reported.publish()  # as it stands once the model is up
    assert desk.said[-1] == before


def test_a_wish_given_up_leaves_what_the_start_found_damaged(tmp_path: Path) -> None:
    """Nothing was wished for since the start, which could not serve what was deployed: that is still so."""
    kept = Kept(tmp_path)
    kept.damaged["m"] = "two.tar: cannot be read"
    desk = Desk(tmp_path, kept)
    desk.reported.publish()
    desk.worker.state, desk.next = ModelState.STARTING, Desired(rev=3, models=())
    desk.wish(2, "b" * 64)
    desk.worker.state = ModelState.READY
    desk.reported.publish()
    found = [(desk.said[at]["state"], desk.said[at]["error"]) for at in (0, -1)]
    assert found == [("FAILED", "two.tar: cannot be read; the configured bundle serves")] * 2
