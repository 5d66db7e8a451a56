"""The process of an isolated engine: `python -m edged.engines.isolated_child ORDER BLOCK WAKE ANSWER CONTROL`.

The arguments are descriptors. The one thread sets its priority, opens the engine as `opening.open_here` does, says so,
and then waits in the kernel for its turn.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable

from edged.engines.isolated_block import Block
from edged.engines.isolated_order import Opened, Order, refusal
from edged.engines.isolated_process import INVOKE, tidy
from edged.engines.opening import open_here

_STDERR = 2


def main(argv: list[str]) -> int:
    """Open, serve until told to close; the status is 0 also when it could not open, for that has been told."""
    order_fd, block_fd, wake, answer, control_fd = map(int, argv)
    for fd in (block_fd, wake, answer, control_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003  # its only argument; no process of the library's shall keep them
    _die_with_parent(control_fd)
    _no_core_dump()
    order = Order.read(order_fd)
    block = Block(block_fd, order.bundle.manifest)
    os.close(block_fd)
    with socket.socket(fileno=control_fd) as control:
        try:
            scheduling = order.policy.apply()
            engine = open_here(order.bundle, order.candidate, order.how, block.wire)
        except Exception as exc:  # noqa: BLE001  # whatever it is, the parent raises it
            control.send(refusal(exc))
            return 0
        tidy(_STDERR)
        gc.freeze()
        control.send(Opened(engine.info, scheduling).message())
        _serve(engine.invoke, block, wake, answer)
        engine.close()
        del engine
        gc.collect()
        _leave()
    return 0


def _serve(run: Callable[[], None], block: Block, wake: int, answer: int) -> None:
    """Answer until told otherwise."""
    while os.eventfd_read(wake) == INVOKE:
        try:
            run()
        except Exception as exc:  # noqa: BLE001  # the top of a request: the parent raises it
            block.refuse(str(exc) or type(exc).__name__)
        os.eventfd_write(answer, 1)
        tidy(_STDERR)


def _die_with_parent(control: int) -> None:
    """Let the kernel end this process when its parent is gone, whatever this one is doing.

    Not by PR_SET_PDEATHSIG: that is sent when the *thread* ends that started this process. The parent writes nothing to
    the socket, so the only news on it is that the parent's end was closed; F_SETSIG makes that a SIGKILL, to the whole
    group: a copy that a library forked ends too.
    """
    leads = os.getpgrp() == os.getpid()
    fcntl.fcntl(control, fcntl.F_SETOWN, -os.getpid() if leads else os.getpid())
    fcntl.fcntl(control, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if poll.poll(0):  # it is gone already
        os._exit(1)


def _no_core_dump() -> None:
    """Writing one would delay the news of a crash. A limit of 1, other than 0, also stops one into a pipe: core(5)."""
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def _leave() -> None:
    """End without the libraries' own clean-up, which crashes in some: the engine has let its device go."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
