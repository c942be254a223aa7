"""Starts the embedded switch as a process and stops it again."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from ina.runtime.server_process import ServerProcess
from ina.runtime.spec import PRIVATE

ANSWER_S = 5.0


class EmbeddedSwitch(ServerProcess):
    """A running ``ina switch``; a context manager that stops it."""

    def __init__(
        self,
        options: Sequence[str],
        *,
        p4runtime: str = PRIVATE,
        title: str = "the switch process",
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start it with these options, and with the sockets that they name.

        `p4runtime` is where others may control it, too.
        """
        super().__init__(
            "switch", title, ["--until-eof", "--p4runtime", p4runtime, *options], pass_fds=pass_fds
        )
        self._private = p4runtime == PRIVATE
        self._turn = threading.Lock()

    @property
    def address(self) -> str:
        """Address of its P4Runtime service, once it listens. Raises ProcessFailed."""
        return str(self.ready()["p4runtime"])

    def udp_address(self, port: int) -> str:
        """Wait until a port's UDP socket is bound; return its address. Raises ProcessFailed."""
        return f"127.0.0.1:{self.ready()['udp_ports'][str(port)]}"

    def shm_path(self, port: int) -> str | None:
        """Return the Unix socket of a port that is shared memory, None if it is not. Raises ProcessFailed."""
        path: str | None = self.ready()["shm_ports"].get(str(port))
        return path

    def statistics(self) -> dict[int, Mapping[str, int]]:
        """Return the counters of each port; empty if it does not answer. Raises ProcessFailed."""
        self.ready()
        with self._turn:
            self.say({"statistics": True})
            answer = self.hear(ANSWER_S) or {}
        return {int(port): counters for port, counters in answer.get("statistics", {}).items()}

    def strangers(self) -> int:
        """Return the number of packets that its UDP ports received from others than their peers."""
        return sum(port["rx_stranger"] for port in self.statistics().values())

    def stop(self) -> None:
        """Ask it to end; kill it if it does not, and remove the folders of its sockets."""
        super().stop()
        if not self.started:
            return
        sockets = [self.address.removeprefix("unix:")] if self._private else []
        for folder in {Path(path).parent for path in (*sockets, *self.ready()["shm_ports"].values())}:
            shutil.rmtree(folder, ignore_errors=True)
