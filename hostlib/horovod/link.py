"""How requests come to rank 0, and announcements back: by messages of a gloo group of its own.

`Link.announced` is fed by a thread: at rank 0 by one for each other rank, at the others by one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import threading
import time
from typing import Any, Final

import torch
import torch.distributed as dist

from hostlib.horovod.negotiation import Announcement, Coordinator, Request

_log = logging.getLogger("hostlib.horovod")
_LOOK_S: Final = 0.25


class Link:
    """This rank's end; any thread may call."""

    def __init__(self, group: dist.ProcessGroup, *, stall_s: float) -> None:
        """`group`: of gloo, of all ranks, for these messages alone."""
        self._group = group
        self._rank, self._size = group.rank(), group.size()
        self._lock = threading.Lock()
        self._coordinator = Coordinator(self._size)
        self._stall_s = stall_s
        self._over = threading.Event()
        self.announced: queue.SimpleQueue[Announcement | None] = queue.SimpleQueue()
        """What is to be done next; None: nothing any more."""
        self.lost = ""
        """Why nothing can be agreed on any more; nothing while it can."""
        self._threads = [threading.Thread(target=self._follow, name="horovod", daemon=True)]
        if self._rank == 0:
            self._threads = [
                *(
                    threading.Thread(target=self._listen, args=(rank,), name=f"horovod {rank}", daemon=True)
                    for rank in range(1, self._size)
                ),
                threading.Thread(target=self._look, name="horovod stalls", daemon=True),
            ]
        for thread in self._threads:
            thread.start()

    def add_set(self, number: int, ranks: list[int]) -> None:
        """Note a process set."""
        if self._rank == 0:
            self._handle(0, {"set": number, "ranks": ranks})

    def remove_set(self, number: int) -> None:
        """Tell rank 0 that this rank has removed a process set."""
        self._tell({"remove": number})

    def submit(self, request: Request) -> None:
        """Tell rank 0 of a request."""
        self._tell({"request": request.to_json()})

    def join(self) -> None:
        """Tell rank 0 that this rank has no more data."""
        self._tell({"join": True})

    def leave(self, why: str) -> None:
        """Tell rank 0 that this rank can carry out nothing any more."""
        self._tell({"leave": True, "why": why})

    def close(self, *, until_s: float) -> None:
        """Tell rank 0 that this rank leaves, and wait until all do, or until a (monotonic) time."""
        self._tell({"leave": True})
        self._over.wait(max(0.0, until_s - time.monotonic()))
        # a thread that comes back from torch while the interpreter ends would abort the process
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _tell(self, message: dict[str, Any]) -> None:
        if self._rank == 0:
            self._handle(0, message)
            return
        try:
            with self._lock:
                send(self._group, message, 0)
        except RuntimeError as error:
            self._end(f"rank 0 cannot be reached: {error}")

    def _listen(self, rank: int) -> None:
        """At rank 0: take in what another rank says."""
        message: dict[str, Any] = {}
        while "leave" not in message:
            try:
                message = receive(self._group, rank)
            except RuntimeError:
                message = {"leave": True, "why": "has ended"}
            self._handle(rank, message)

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        with self._lock:
            announced = self._take(rank, message)
            for to in range(1, self._size) if announced else ():
                with contextlib.suppress(RuntimeError):  # its listener hears of it, too
                    send(self._group, {"announced": [each.to_json() for each in announced]}, to)
            for each in announced:
                self.announced.put(each)
            everybody_left = self._coordinator.everybody_left
        if everybody_left:
            for to in range(1, self._size):
                with contextlib.suppress(RuntimeError):
                    send(self._group, {"end": True}, to)
            self._end("")

    def _take(self, rank: int, message: dict[str, Any]) -> list[Announcement]:
        if "request" in message:
            return self._coordinator.submit(rank, Request.from_json(message["request"]), time.monotonic())
        if "set" in message:
            return self._coordinator.add_set(message["set"], message["ranks"])
        if "remove" in message:
            return self._coordinator.remove_set(rank, message["remove"])
        if "join" in message:
            return self._coordinator.join(rank)
        return self._coordinator.leave(rank, message.get("why", "has shut down"))

    def _follow(self) -> None:
        """At the others: take in what rank 0 says."""
        why = ""
        while not self._over.is_set():
            try:
                message = receive(self._group, 0)
            except RuntimeError as error:
                why = f"rank 0 has ended: {error}"
                message = {"end": True}
            if "end" in message:
                self._end(why)
                return
            for each in message["announced"]:
                self.announced.put(Announcement.from_json(each))

    def _look(self) -> None:
        while not self._over.wait(min(_LOOK_S, self._stall_s / 4)):
            with self._lock:
                said = self._coordinator.stalled(time.monotonic(), self._stall_s)
            for line in said:
                _log.warning("%s", line)

    def _end(self, why: str) -> None:
        self.lost = self.lost or why
        self._over.set()
        self.announced.put(None)


def send(group: dist.ProcessGroup, message: dict[str, Any], rank: int) -> None:
    """Send a message. Raises RuntimeError if the rank is gone."""
    text = bytearray(json.dumps(message).encode())
    group.send([torch.tensor([len(text)])], rank, 0).wait()
    group.send([torch.frombuffer(text, dtype=torch.uint8)], rank, 0).wait()


def receive(group: dist.ProcessGroup, rank: int) -> dict[str, Any]:
    """Wait for a rank's next message. Raises RuntimeError if it is gone."""
    length = torch.zeros(1, dtype=torch.int64)
    group.recv([length], rank, 0).wait()
    text = torch.empty(int(length), dtype=torch.uint8)
    group.recv([text], rank, 0).wait()
    message: dict[str, Any] = json.loads(text.numpy().tobytes())
    return message
