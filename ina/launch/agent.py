"""The ranks of one machine, for ``ina run`` on another one: a process at the far end of ssh, or the like.

Lines of JSON on its output and input:

=========  ===============================================  =======================================
from here  ``{"here": {"version": text, "store": port}}``   first; a TCP port is kept for rank 0
           ``{"output": [number, text, is_error]}``         of a rank, by its number on this machine;
                                                            bytes as latin-1
           ``{"exit": [number, status, reason]}``           it has ended
           ``{"alive": true}``                              every `ALIVE_S`
           ``{"failed": reason}``                           the ranks could not be started
           ``{"done": processes}``                          last; N processes were left running, and ended
to here    ``{"start": {"command": [...],                   once; an environment for each rank
           "folder": path, "variables": [{...}],            and patterns of what it inherits, or null
           "inherited": [...]}}``
           ``{"alive": true}``                              every `ALIVE_S`
=========  ===============================================  =======================================

The end of its input, or silence for `SILENCE_S`, is the end of ``ina run``: then all ranks are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

from hostlib.launch import keeper
from hostlib.launch.launcher import SETTINGS, LaunchError, Workers, account
from hostlib.version import version
from ina.launch.addresses import server_address

STARTER: Final = "INA_STARTER"
"""Environment variable with the number of the user who started the agent. It arrives only if a command such
as setpriv keeps that user's environment, which is then not passed on to another user's ranks."""
ALIVE_S: Final = 0.5
SILENCE_S: Final = 20.0
START_S: Final = 120.0
"""Longest wait for a start: other machines may be slower."""


class MachineAgent:
    """Reports the state of the ranks, and receives the request to end them."""

    def __init__(self, orders: Iterable[str], out: TextIO) -> None:
        """Read lines from `orders`, and write to `out`."""
        self._lines = orders
        self._out = out
        self._saying = threading.Lock()
        self._said_s = 0.0
        self._heard_s = time.monotonic()
        self._over = threading.Event()
        self._orders: queue.Queue[Mapping[str, Any] | None] = queue.Queue()

    def run(self) -> None:
        """Serve from the first line to the last."""
        threading.Thread(target=self._listen, daemon=True).start()
        with server_address("") as store:
            self._say({"here": {"version": version(), "store": store.getsockname()[1]}})
            with contextlib.suppress(queue.Empty):
                if order := self._orders.get(timeout=START_S):
                    self._serve(order)

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Report that a rank has ended; `Workers` calls it."""
        self._say({"exit": [rank, status, reason]})

    def _serve(self, order: Mapping[str, Any]) -> None:
        try:
            os.chdir(order["folder"])
            os.environ["PWD"] = order["folder"]
        except OSError as error:
            self._say({"failed": f"cannot work in {order['folder']}: {error.strerror}"})
            return
        inherited, variables = order["inherited"], order["variables"]
        if inherited is None and os.environ.pop(STARTER, str(own := os.geteuid())) != str(own):
            inherited, variables = SETTINGS, [{**account(pwd.getpwuid(own)), **each} for each in variables]
        try:
            workers = Workers(order["command"], variables, self, self._output, inherited)
        except OSError as error:
            self._say({"failed": f"cannot start ranks: {error}"})
        except LaunchError as error:
            self._say({"failed": str(error)})
        else:
            workers.wait(on_tick=lambda: self._look(workers))
            self._say({"done": workers.left_running})

    def _look(self, workers: Workers) -> None:
        now = time.monotonic()
        if now - self._said_s > ALIVE_S:
            self._said_s = now
            self._say({"alive": True})
        if self._over.is_set() or now - self._heard_s > SILENCE_S:
            workers.kill()

    def _output(self, rank: int, data: bytes, is_error: bool) -> None:
        self._say({"output": [rank, data.decode("latin-1"), is_error]})

    def _say(self, message: object) -> None:
        try:
            with self._saying:
                print(json.dumps(message), file=self._out, flush=True)
        except OSError:  # no process reads it any more
            self._over.set()

    def _listen(self) -> None:
        for line in self._lines:
            self._heard_s = time.monotonic()
            with contextlib.suppress(ValueError):
                if order := json.loads(line).get("start"):
                    self._orders.put(order)
        self._over.set()
        self._orders.put(None)


if __name__ == "__main__":
    keeper.adopt()
    MachineAgent(sys.stdin, sys.stdout).run()
    keeper.end_adopted()
