"""The agent: a process that starts the ranks of its machine for an ``ina run`` on another machine.

``ina run`` starts it by ssh or a similar command; both exchange lines of JSON on its output and input:

=========  ===============================================  =======================================
output     ``{"here": {"version": text, "store": port}}``   first; `store` is a reserved TCP port
           ``{"output": [number, text, is_error]}``         output of a rank, by its number on this
                                                            machine; bytes as latin-1
           ``{"exit": [number, status, reason]}``           a rank has ended
           ``{"alive": true}``                              every `ALIVE_S`
           ``{"failed": reason}``                           the ranks could not be started
           ``{"done": processes}``                          last; number of processes that ranks had
                                                            left running, and that are now ended
input      ``{"start": {"command": [...],                   once; `variables` has the environment
           "folder": path, "variables": [{...}],            variables of each rank, `inherited` the
           "inherited": [...]}}``                           patterns of variables that all ranks
                                                            inherit from the agent (null: all)
           ``{"alive": true}``                              every `ALIVE_S`
=========  ===============================================  =======================================

When its input ends, or has no line for `SILENCE_S`, the agent ends all ranks: ``ina run`` has ended or hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

from hostlib.launch import keeper
from hostlib.launch.launcher import SETTINGS, LaunchError, Workers, account
from hostlib.version import version

STARTER: Final = "INA_STARTER"
"""Environment variable with the ID of the user who runs ``ina run``. It reaches the agent only if the launch
command, such as setpriv, keeps the environment. If the agent runs as another user, its ranks do not inherit
that environment."""
ALIVE_S: Final = 0.5
SILENCE_S: Final = 20.0
START_S: Final = 120.0
"""Maximum time, in s, to wait for the request to start ranks. ``ina run`` sends it once all agents run."""


class MachineAgent:
    """Starts the ranks of this machine, and reports their output and exit statuses.

    When its input ends, it kills the ranks.
    """

    def __init__(self, orders: Iterable[str], out: TextIO) -> None:
        """Read lines of JSON from `orders`, and write lines of JSON to `out`."""
        self._lines = orders
        self._out = out
        self._sending = threading.Lock()
        self._sent_alive_s = 0.0
        self._received_s = time.monotonic()
        self._over = threading.Event()
        self._orders: queue.Queue[Mapping[str, Any] | None] = queue.Queue()

    def run(self) -> None:
        """Send the first line (``here``), start the requested ranks, and return once all have ended."""
        threading.Thread(target=self._listen, daemon=True).start()
        with server_address("") as store:
            self._send({"here": {"version": version(), "store": store.getsockname()[1]}})
            with contextlib.suppress(queue.Empty):
                if order := self._orders.get(timeout=START_S):
                    self._serve(order)

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Send ``ina run`` the exit status of a rank; `Workers` calls this method."""
        self._send({"exit": [rank, status, reason]})

    def _serve(self, order: Mapping[str, Any]) -> None:
        try:
            os.chdir(order["folder"])
            os.environ["PWD"] = order["folder"]
        except OSError as error:
            self._send({"failed": f"cannot change to folder {order['folder']}: {error.strerror}"})
            return
        inherited, variables = order["inherited"], order["variables"]
        if inherited is None and os.environ.pop(STARTER, str(own := os.geteuid())) != str(own):
            inherited, variables = SETTINGS, [{**account(pwd.getpwuid(own)), **each} for each in variables]
        try:
            workers = Workers(order["command"], variables, self, self._output, inherited)
        except OSError as error:
            self._send({"failed": f"cannot start ranks: {error}"})
        except LaunchError as error:
            self._send({"failed": str(error)})
        else:
            workers.wait(on_tick=lambda: self._look(workers))
            self._send({"done": workers.left_running})

    def _look(self, workers: Workers) -> None:
        now = time.monotonic()
        if now - self._sent_alive_s > ALIVE_S:
            self._sent_alive_s = now
            self._send({"alive": True})
        if self._over.is_set() or now - self._received_s > SILENCE_S:
            workers.kill()

    def _output(self, rank: int, data: bytes, is_error: bool) -> None:
        self._send({"output": [rank, data.decode("latin-1"), is_error]})

    def _send(self, message: object) -> None:
        try:
            with self._sending:
                print(json.dumps(message), file=self._out, flush=True)
        except OSError:  # no process reads it any more
            self._over.set()

    def _listen(self) -> None:
        for line in self._lines:
            self._received_s = time.monotonic()
            with contextlib.suppress(ValueError):
                if order := json.loads(line).get("start"):
                    self._orders.put(order)
        self._over.set()
        self._orders.put(None)


def server_address(host: str) -> socket.socket:
    """Return a socket that reserves a free TCP port of the address `host`.

    A server can still bind that port if it sets SO_REUSEADDR.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held


if __name__ == "__main__":
    keeper.adopt()
    MachineAgent(sys.stdin, sys.stdout).run()
    keeper.end_adopted()
