"""Starts the embedded switch as a process and stops it again."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from ina.errors import ProcessFailed
from ina.run.launch import PRIVATE
from ina.run.launch.server_process import ANSWER_S, AnsweringProcess


class EmbeddedSwitch(AnsweringProcess):
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

    def _stuck_for(self, silent_s: float) -> str:
        how = "was stopped (SIGSTOP)" if self.is_stopped() else "did not answer"
        return f"{how} for {silent_s:g} s, and was killed"

    def strangers(self) -> int:
        """Return the number of packets that the UDP ports received from senders that are not their peers.

        Raises ProcessFailed.
        """
        self.ready()
        return sum(port["rx_stranger"] for port in self.statistics().values())

    def stop(self) -> None:
        """Terminate the process, or kill it if it does not end, and remove the folders of its sockets."""
        super().stop()
        if not self.started:
            return
        sockets = [self.address.removeprefix("unix:")] if self._private else []
        for folder in {Path(path).parent for path in (*sockets, *self.ready()["shm_ports"].values())}:
            shutil.rmtree(folder, ignore_errors=True)
