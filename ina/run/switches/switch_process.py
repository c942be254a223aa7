"""Starts the embedded switch as a process and stops it again."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ina.errors import ProcessFailed
from ina.run.launch import PRIVATE
from ina.run.launch.server_process import ServerProcess

ANSWER_S = 5.0
ASK_S = 0.5
"""Interval, in seconds, of requests for statistics; the answers also show that the switch's process lives."""
PATIENCE_S = 3.0
"""Time without an answer, in seconds, after which the process is killed; workers give up only later."""


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
        """Start the switch's process, without waiting for it.

        Args:
            options: Options of ``ina switch``.
            p4runtime: Where the switch serves P4Runtime; PRIVATE: at a socket for this process alone.
            title: Name of the process in messages.
            pass_fds: File descriptors of the sockets that the options name.
        """
        self._arguments = ["--until-eof", "--p4runtime", p4runtime, *options]
        self._pass_fds = pass_fds
        self._private = p4runtime == PRIVATE
        self._turn = threading.Lock()
        self._launch(title)

    def _launch(self, title: str) -> None:
        super().__init__("switch", title, self._arguments, pass_fds=self._pass_fds)
        self._stuck: str | None = None
        self._pending = False
        self._heard_s = self._looked_s = time.monotonic()
        self._silent_s = 0.0

    def restart(self) -> None:
        """Restart a switch that has ended, on the same sockets; its tables are then empty.

        Raises ProcessFailed.
        """
        with self._turn:
            self.stop()
            self._launch(self.title)
            self.ready()

    def add_port(self, number: int, spec: str, impairments: str) -> None:
        """Open one more port, now and after each restart of the switch.

        Args:
            number: Number of the port.
            spec: Kind of the port: "shm", or "udp::PEER", where PEER is the UDP port of the peer.
            impairments: Faults of the port, as for ``ina switch --impair``; "": none.

        Raises ProcessFailed if the port could not be opened, or the process does not answer.
        """
        kind, *peer = spec.split("::")
        opens = f"{kind}:0:{peer[0]}" if peer else kind
        with self._turn:
            if self._pending:
                self.hear(ANSWER_S)
            self._pending = False
            self.say({"port": f"{number}={opens}", "impair": impairments})
            answer = self.hear(ANSWER_S) or {"error": "does not answer"}
            if "error" in answer:
                raise ProcessFailed(f"{self.title}: {answer['error']}")
            self.ready().update(answer)
        if peer:
            opens = f"{kind}:{answer['udp_ports'][str(number)]}:{peer[0]}"
        self._arguments += ["--port", f"{number}={opens}"]
        if impairments:
            self._arguments += ["--impair", f"{number}:{impairments}"]

    @property
    def shares_memory(self) -> bool:
        """Whether the switch has ports in shared memory: workers cannot reconnect to them after a restart."""
        return bool(self.ready()["shm_ports"])

    @property
    def address(self) -> str:
        """Address of the switch's P4Runtime service; waits until it listens. Raises ProcessFailed."""
        return str(self.ready()["p4runtime"])

    def udp_address(self, port: int) -> str:
        """Wait until a port's UDP socket is bound; return its address. Raises ProcessFailed."""
        return f"127.0.0.1:{self.ready()['udp_ports'][str(port)]}"

    def shm_path(self, port: int) -> str | None:
        """Return the Unix socket of a port in shared memory; None for other ports. Raises ProcessFailed."""
        path: str | None = self.ready()["shm_ports"].get(str(port))
        return path

    def ended(self) -> str | None:
        """Return how the process ended; None while it runs and answers. Call it often.

        A process that is silent for `PATIENCE_S`, because it hangs or was stopped, is killed.
        """
        if self._stuck is None and self.started and (why := self._silence()):
            self._stuck = f"{self.title} {why}, and was killed"
            self.kill()
        return self._stuck or super().ended()

    def _silence(self) -> str | None:
        """Ask the process for statistics; return an error if it was silent for `PATIENCE_S`, else None."""
        if not self._turn.acquire(blocking=False):
            return None  # a request is pending
        try:
            now = time.monotonic()
            # After a pause of our own process, only the last ASK_S count as silence: earlier answers could
            # not be received.
            self._silent_s += min(now - self._looked_s, ASK_S)
            self._looked_s = now
            if not self._pending:
                if now - self._heard_s > ASK_S:
                    self._ask()
            elif self.hear(0.0) is not None:
                self._pending, self._heard_s = False, now
            elif self._silent_s > PATIENCE_S:
                how = "was stopped (SIGSTOP)" if self.is_stopped() else "did not answer"
                return f"{how} for {PATIENCE_S:g} s"
            return None
        finally:
            self._turn.release()

    def _ask(self) -> None:
        self.say({"statistics": True})
        self._pending, self._silent_s, self._looked_s = True, 0.0, time.monotonic()

    def statistics(self) -> dict[int, Mapping[str, int]]:
        """Return the counters of each port; empty if the switch does not answer. Raises ProcessFailed."""
        self.ready()
        with self._turn:
            if self._pending:
                self.hear(ANSWER_S)
            self._ask()
            answer = self.hear(ANSWER_S) or {}
            self._pending = not answer
        return {int(port): counters for port, counters in answer.get("statistics", {}).items()}

    def strangers(self) -> int:
        """Return the number of packets that the UDP ports received from senders that are not their peers."""
        return sum(port["rx_stranger"] for port in self.statistics().values())

    def stop(self) -> None:
        """Terminate the process, or kill it if it does not end, and remove the folders of its sockets."""
        super().stop()
        if not self.started:
            return
        sockets = [self.address.removeprefix("unix:")] if self._private else []
        for folder in {Path(path).parent for path in (*sockets, *self.ready()["shm_ports"].values())}:
            shutil.rmtree(folder, ignore_errors=True)
