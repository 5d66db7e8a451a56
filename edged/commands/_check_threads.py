"""What affinity and priority the threads of a configuration would get on this machine, as this user: tried, not run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edged import affinity, assembly
from edged.affinity import ThreadPolicy
from edged.config import Config


@dataclass(frozen=True)
class Tried:
    """cpus: what is wrong with the CPUs, "" when nothing is. priority: what holds, as the status tells it."""

    cpus: str
    priority: str

    @property
    def refused(self) -> bool:
        """Whether the priority that was asked for is not to be had."""
        return "not permitted" in self.priority or "not supported" in self.priority


def tried(config: Config) -> dict[str, Tried]:
    """Return what each thread would get, by where it is configured: `network`, `models.<name>`."""
    policies = {f"models.{model.name}": assembly.policy(model, config.models) for model in config.models}
    return {where: _try(policy) for where, policy in ({"network": assembly.network_policy(config)} | policies).items()}


def warnings(found: Mapping[str, Tried]) -> Iterator[str]:
    """Yield CPUs that are not there: the daemon serves without them."""
    return (f"{where}.cpus: {one.cpus}" for where, one in found.items() if one.cpus)


def _try(policy: ThreadPolicy) -> Tried:
    told: list[str] = []

    def apply() -> None:
        told.extend((affinity.pin(policy.cpus) or "", affinity.raise_priority(policy.realtime, policy.behind)))

    # Both end with the thread.
    thread = threading.Thread(target=apply)
    thread.start()
    thread.join()
    return Tried(*told)
