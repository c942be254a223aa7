"""A process's side of a group: wait for its turn before each stage."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hostlib.addresses import parse_address
from hostlib.errors import RendezvousError
from hostlib.interleave.stages import GroupBroken, GroupError, Iteration, Stage, StageTimer, Turns
from hostlib.meet import TO_WORKER_BYTES, Lines, MessageError, encode
from hostlib.meet.connections import Place, knock

CONNECT_S: Final = 60.0
"""Longest wait, in seconds, for each answer of the turn server while this process joins."""
VARIABLE: Final = "INA_GROUP"
"""Environment variable, set by the launcher, with the group's address and the job's name in the group."""


def join(rank: int, environment: Mapping[str, str] = os.environ) -> StageTimer:
    """Return the timer of this process's stages.

    In a group (the environment variable ``INA_GROUP``) the timer's stages wait for their turns. Otherwise
    they begin at once. `rank` is the worker's number in its job (`hostlib.rank`).

    Raises GroupError if the variable is invalid, GroupBroken if the group cannot be joined.
    """
    text = environment.get(VARIABLE)
    if text is None:
        return StageTimer()
    try:
        place = json.loads(text)
        job, token = str(place["job"]), str(place["token"])
        if "socket" in place:
            path: Place = Path(place["socket"])
        else:
            path = parse_address(place["address"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shown = "an invalid text that holds a token" if "token" in text else repr(text)
        raise GroupError(
            f'{VARIABLE} is {shown}; it must be a JSON object with "job", "token", and "socket" or "address"'
        ) from error
    return StageTimer(Membership(path, job, rank, token))


class Membership(Turns):
    """The connection to a group's turn server; only one thread may use it."""

    def __init__(self, place: Place, job: str, rank: int, token: str) -> None:
        """Join the group.

        Args:
            place: Path of the group's Unix socket, or its TCP address.
            job: Name of the job in the group.
            rank: Rank of this process in the job.
            token: Secret of the group.

        Raises GroupBroken if there is no such group, or it refuses this process.
        """
        try:
            self._socket, _ = knock(place, {"job": job, "rank": rank}, token, CONNECT_S)
        except RendezvousError as error:
            raise GroupBroken(f"refused: {error}") from error
        except (OSError, MessageError) as error:
            raise GroupBroken(f"job {job}, rank {rank}: cannot join the group at {place}: {error}") from error
        self._messages = Lines(TO_WORKER_BYTES).received(self._socket)

    def take(self, stage: Stage) -> None:
        """Wait for this job's turn. Raises GroupBroken if the group has failed."""
        self._send({"ask": stage})
        self._await("go")

    def give(self) -> None:
        """Release this job's turn; the next turn begins once this process waits for its next stage."""
        self._send({"done": True})

    def iterated(self, done: Iteration) -> None:
        """Report the times of an iteration."""
        self._send({"iterated": done.stages_s, "total_s": done.total_s})

    def leave(self, failure: str = "") -> None:
        """Send a farewell; without effect if one was sent before."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(GroupBroken):  # the turn server is gone
                self._send({"leave": failure})
                self._await("left")  # all earlier messages have been read, too
            self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        # A turn server that is gone is noticed at the next turn, with the reason that it sent, if any.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(encode(message))

    def _await(self, expected: str) -> None:
        answer = next(self._messages, {})
        if not answer.get(expected):
            raise GroupBroken(str(answer.get("broken", "the group's turn server is gone")))
