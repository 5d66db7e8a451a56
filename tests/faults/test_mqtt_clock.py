"""The wall clock jumps, as when a box without a battery hears of NTP: nothing but the stamp of messages follows it."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support import require, tinymodel
from support.brokers import mosquitto
from support.daemons import DaemonProcess
from support.faulty import DENSE, Asked, answered_once, metrics, serving

from edged.client import Client
from edged.clock import wall_s

pytestmark = pytest.mark.broker
DAY_S = 86_400
KEEPALIVE_S = 3  # a busy machine may hold up a process for a second
# What every way to the wall clock goes through, with as many seconds added as stand in a file.
SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
    if (file >= 0) shift = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (!failed && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += *shift;
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class ShiftedDaemon(DaemonProcess):
    """A daemon whose wall clock can be set."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        directory = self.config.parent
        (directory / "shim.c").write_text(SHIM)
        library, shift = directory / "shim.so", directory / "shift"
        build = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(directory / "shim.c")]
        subprocess.run(build, check=True, capture_output=True)
        shift.write_bytes(bytes(8))
        with shift.open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), 8)
        environment = os.environ | {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}
        command = [sys.executable, "-m", "edged", "run", "-c", str(self.config)]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, env=environment)

    def shift(self, seconds: int) -> None:
        """Put the wall clock so far from the true one."""
        self._shift[:] = struct.pack("q", seconds)


def test_wall_clock_jumps(tmp_path: Path) -> None:
    """Ten years on, then back before the epoch of everything: requests, deadlines, keepalive and reports go on."""
    require.programs("gcc")
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        mosquitto() as broker,
        ShiftedDaemon(tmp_path, broker.port, serving(DENSE, broker={"keepalive_s": KEEPALIVE_S})) as daemon,
        Client(broker.url_v5) as client,
    ):
        daemon.ready()
        for number, shift in enumerate((0, 3650 * DAY_S, -3650 * DAY_S, DAY_S // 24)):
            daemon.shift(shift)
            asked = Asked(client, 100, first=100 * number)
            assert asked.outcome() == {"ok": 100}
            # After a jump back for as long as it takes until silence is noticed; a false alarm would come at once.
            found = metrics(broker.port, after=1.5 * KEEPALIVE_S if shift < 0 else 1.2)
            assert abs(found["ts"] - wall_s() - shift) < 60  # the stamp follows: the shim works
            assert 0 < found["interval_s"] < 30
            assert found["models"]["dense"]["since_start"]["latency"]["total"]["max_us"] < 30_000_000
            status = daemon.state("ready")
            assert 0 <= status["models"]["dense"]["last_inference_age_s"] < 60
        assert answered_once(client, 400)
        assert found["transport"]["disconnects"] == 0
        assert daemon.stop() == 0
