"""Ranks of several machines that somebody else has started come to a job of a switch that all of them reach.

Each rank tells the first one which machine it is on, and a random challenge. The first one has ``ina admit``
admit the job, with its ranks by machine, and publishes the configurations with all challenges, sealed with
the secret of ``INA_TOKEN``: what carries them, such as torch's store, is open to all who can connect. A rank
refuses an answer without its challenge, which is one of an earlier launch.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from hostlib.addresses import Address
from hostlib.config import JobConfig
from hostlib.errors import ConfigError, InaError, RendezvousError
from hostlib.io.interfaces import known_as
from hostlib.launch.hosting import MEETING_S, admit
from hostlib.launch.launched_rank import LaunchedRank, slurm_meeting
from hostlib.launch.sealed import proof, require, seal, unseal
from hostlib.settings import EMBEDDED, Settings
from hostlib.version import version

LEAST_SECRET: Final = 16
_LINE_BYTES: Final = 1 << 20
_STRANGER_S: Final = 10.0
_MOST_STRANGERS: Final = 64
_RETRY_S: Final = 0.05
_CANNOT_SEAL: Final = "cannot seal"
"""The first rank's answer where it has no secret to seal one with, so that the others do not wait for it."""


class Channel(Protocol):
    """Carries a text from each rank to the first, and one back."""

    def gather(self, text: str) -> Sequence[str]:
        """Give this rank's text; return those of all ranks at the first one, nothing at others."""
        ...

    def spread(self, text: str) -> str:
        """Return the first rank's text; what others give does not matter."""
        ...


def machine() -> str:
    """Return a name of this machine that no other has; a network namespace is one of its own."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/net').stat().st_ino}"


@dataclass(frozen=True, slots=True)
class RankArrival:
    """A rank's message to the first one."""

    machine: str
    challenge: str
    """Random text that the answer must contain."""
    version: str
    """Of the library there."""
    known_as: tuple[str, ...]
    """Names and addresses of the machine, by which a cluster file may know it."""

    @classmethod
    def here(cls) -> Self:
        """Return this process's."""
        return cls(machine(), secrets.token_hex(16), version(), known_as())

    def to_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps([self.machine, self.challenge, self.version, *self.known_as])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read an arrival. Raises RendezvousError if the text is none."""
        try:
            machine, challenge, version, name, *more = map(str, json.loads(text))
        except (TypeError, ValueError) as error:
            raise RendezvousError(
                f"a rank told the first one {text[:100]!r}, must be its machine and a challenge: do all "
                "machines have the same version of ina?"
            ) from error
        return cls(machine, challenge, version, (name, *more))


def by_machine(names: Sequence[str]) -> list[list[int]]:
    """Return the ranks of each machine, from the machine of each rank, in the order of their first ranks."""
    found: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        found.setdefault(name, []).append(rank)
    return list(found.values())


def check(settings: Settings, *, first: bool) -> None:
    """Raise ConfigError for what ranks on several machines cannot do without.

    The `first` rank's machine has to know the switches, and admits the job for all.
    """
    names_machines = settings.cluster or settings.given or settings.controller
    if first and settings.switch == EMBEDDED and not names_machines:
        raise ConfigError(
            "the ranks are on several machines, and neither INA_CLUSTER, INA_CONTROLLER nor INA_SWITCH is "
            "set: want a cluster file, the URL of a controller, or the grpc://host:port of a switch that all "
            "reach (docs/torch.md)"
        )
    if len(settings.token) < LEAST_SECRET:
        raise ConfigError(
            f"the ranks are on several machines, and INA_TOKEN has {len(settings.token)} characters: it must "
            f"be a secret of {LEAST_SECRET} or more, the same on all (openssl rand -hex 32)"
        )
    require()


def meet(
    channel: Channel,
    rank: int,
    own: RankArrival,
    arrivals: Sequence[RankArrival],
    listen: str | None,
    settings: Settings,
) -> JobConfig:
    """Have a job admitted by the first rank; return this rank's configuration.

    Args:
        channel: that `own` has been given to.
        rank: of this process.
        own: what this rank has told the first one.
        arrivals: of all ranks, in their order; used at the first one only.
        listen: address of the first rank's machine where ranks meet; used at the first one only.
        settings: of this process.

    Raises:
        ConfigError: the settings are wrong.
        RendezvousError: the job was not admitted, or a rank has another token.
    """
    if rank:
        check(settings, first=False)
        answer = channel.spread("")
        if answer == _CANNOT_SEAL:
            raise RendezvousError(f"rank {rank}: rank 0 cannot seal its message; its own error says why")
        told = json.loads(unseal(answer, settings.token))
        if told["challenges"][rank : rank + 1] != [own.challenge]:
            raise RendezvousError(
                f"rank {rank}: the first rank's message answers another launch than this one: somebody has "
                "sent an old message again, or two launches use one meeting point"
            )
        if "failed" in told:
            raise RendezvousError(f"rank {rank}: rank 0 could not have the job admitted: {told['failed']}")
        return JobConfig.from_json(json.dumps(told["configs"][rank]))

    try:
        check(settings, first=True)
    except ConfigError:
        channel.spread(_CANNOT_SEAL)
        raise

    def publish(**told: Any) -> None:
        challenges = [each.challenge for each in arrivals]
        channel.spread(seal(json.dumps({"challenges": challenges, **told}), settings.token))

    try:
        machines = by_machine([each.machine for each in arrivals])
        several = any(len(ranks) > 1 for ranks in machines)
        if several and settings.hierarchical is False:
            raise ConfigError(
                "INA_HIERARCHICAL is 0, and a machine of several has several ranks: a switch's port has one "
                "worker, so these have to be summed there first"
            )
        _check_versions(own, arrivals)
        hierarchical = several or bool(settings.hierarchical)
        names = [arrivals[ranks[0]].known_as for ranks in machines]
        configs = admit(settings, machines, names, hierarchical=hierarchical, listen=_address(listen))
    except InaError as error:
        publish(failed=str(error))
        raise
    publish(configs=configs)
    return JobConfig.from_json(json.dumps(configs[0]))


def _check_versions(own: RankArrival, arrivals: Sequence[RankArrival]) -> None:
    for rank, arrival in enumerate(arrivals):
        if arrival.version != own.version:
            raise RendezvousError(
                f"rank {rank} on {arrival.known_as[0]} has ina {arrival.version}, rank 0 on "
                f"{own.known_as[0]} has {own.version}: install the same version on all machines"
            )


def launched(place: LaunchedRank, settings: Settings) -> JobConfig:
    """Do as `meet`, for a launcher's ranks: they find each other at ``INA_MEETING``."""
    check(settings, first=place.rank == 0)
    address = meeting_place(place, settings)
    found = TcpChannel(place.rank, place.size, address, settings.token, settings.meeting_s)
    with contextlib.closing(found) as channel:
        own = RankArrival.here()
        try:
            texts = channel.gather(own.to_text())
        except MissingRanks as error:
            here = [text and RankArrival.from_text(text).challenge for text in error.arrived]
            channel.spread(seal(json.dumps({"challenges": here, "failed": str(error)}), settings.token))
            raise
        arrivals = [RankArrival.from_text(text) for text in texts]
        return meet(channel, place.rank, own, arrivals, address[0], settings)


def meeting_place(place: LaunchedRank, settings: Settings) -> Address:
    """Return the address where ranks without a common store meet. Raises ConfigError: nobody knows it."""
    if settings.meeting is None and place.launcher == "srun":
        return slurm_meeting(os.environ)
    if settings.meeting is None:
        raise ConfigError(
            f"{place.launcher} has put {place.local_size} of {place.size} ranks on this machine, and "
            "INA_MEETING is not set: it must be a free HOST:PORT of the first rank's machine"
        )
    return settings.meeting


def _address(listen: str | None) -> str:
    if listen is None:
        raise ConfigError("MASTER_ADDR is not set: it must be an address of the first rank's machine")
    try:
        return socket.gethostbyname(listen)
    except OSError as error:
        raise ConfigError(
            f"the address of the first rank's machine, {listen}, is not known: {error}"
        ) from error


class MissingRanks(RendezvousError):
    """Some ranks have not come to the meeting place in time."""

    def __init__(self, arrived: Sequence[str], patience_s: float) -> None:
        """`arrived` is what each rank has said; nothing if it has not come."""
        self.arrived = arrived
        missing = [str(rank) for rank, text in enumerate(arrived) if not text]
        ranks = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(missing)} have"
        super().__init__(f"{ranks} not come to INA_MEETING within {patience_s:g} s, of {len(arrived)} ranks")


class TcpChannel:
    """A channel of ranks that have none: the first one listens, and hears only those who know the secret.

    It sends each that connects a random challenge, and hears one line that is proved with the secret and that
    challenge: a line recorded from an earlier connection proves nothing.
    """

    def __init__(
        self, rank: int, size: int, address: Address, secret: str, patience_s: float = MEETING_S
    ) -> None:
        """Listen, if this is the first rank.

        Args:
            rank: Of this process.
            size: Number of ranks.
            address: One of the first rank's machine.
            secret: That all ranks have.
            patience_s: Longest wait for ranks to come.

        Raises ConfigError if the first rank cannot listen there.
        """
        self._patience_s = patience_s
        self._rank = rank
        self._size = size
        self._address = address
        self._secret = secret
        self._said: dict[int, str] = {}
        self._connections: list[socket.socket] = []
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        if rank == 0:
            try:
                self._listener = socket.create_server(address, backlog=size + _MOST_STRANGERS)
            except OSError as error:
                host, port = address
                raise ConfigError(f"INA_MEETING: cannot listen at {host}:{port}: {error.strerror}") from error

    def gather(self, text: str) -> Sequence[str]:
        """Give this rank's text. Raises MissingRanks if some do not come, RendezvousError."""
        if self._listener is None:
            self._say(text)
            return []
        self._said[0] = text
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._said) == self._size, self._patience_s):
                raise MissingRanks([self._said.get(rank, "") for rank in range(self._size)], self._patience_s)
        return [self._said[rank] for rank in range(self._size)]

    def spread(self, text: str) -> str:
        """Return the first rank's text. Raises RendezvousError if it is gone."""
        if self._listener is not None:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.sendall(text.encode() + b"\n")
            return text
        try:
            return _line(self._connections[0], self._patience_s + MEETING_S)
        except OSError as error:
            raise RendezvousError(
                f"rank {self._rank}: rank 0 is gone, or does not answer: {error}"
            ) from error

    def close(self) -> None:
        """Leave."""
        for each in (*self._connections, *filter(None, [self._listener])):
            each.close()

    def _say(self, text: str) -> None:
        deadline = time.monotonic() + self._patience_s
        said = json.dumps([self._rank, self._size, text])
        while True:
            try:
                with contextlib.ExitStack() as stack:
                    connection = socket.create_connection(self._address, timeout=_STRANGER_S)
                    stack.enter_context(connection)
                    challenge = _line(connection, _STRANGER_S)
                    shown = proof(challenge + said, self._secret)
                    connection.sendall(json.dumps([said, shown]).encode() + b"\n")
                    stack.pop_all()
            except OSError as error:
                if time.monotonic() > deadline:
                    host, port = self._address
                    why = f"rank {self._rank}: nobody listens at INA_MEETING, {host}:{port}: {error}"
                    raise RendezvousError(why) from error
                time.sleep(_RETRY_S)
            else:
                self._connections = [connection]
                return

    def _accept(self, listener: socket.socket) -> None:
        room = threading.Semaphore(self._size + _MOST_STRANGERS)
        with contextlib.suppress(OSError):  # closed
            while len(self._said) < self._size:
                connection, _ = listener.accept()
                room.acquire()
                threading.Thread(target=self._hear, args=(connection, room), daemon=True).start()

    def _hear(self, connection: socket.socket, room: threading.Semaphore) -> None:
        try:
            challenge = secrets.token_hex(16)
            connection.sendall(challenge.encode() + b"\n")
            said, shown = json.loads(_line(connection, _STRANGER_S))
            if not hmac.compare_digest(shown, proof(challenge + said, self._secret)):
                raise ValueError("another secret")
            rank, size, text = json.loads(said)
            with self._changed:
                if size != self._size or rank in self._said:
                    raise ValueError("another job")
                self._connections.append(connection)
                self._said[rank] = text
                self._changed.notify_all()
        except (OSError, ValueError, TypeError):
            connection.close()
        finally:
            room.release()


def _line(connection: socket.socket, timeout_s: float) -> str:
    """Return a line that the other end says in time. Raises OSError."""
    deadline = time.monotonic() + timeout_s
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        if not (more := connection.recv(1 << 16)) or len(data) > _LINE_BYTES:
            raise ConnectionAbortedError("the connection has ended")
        data += more
    return data.decode(errors="replace").rstrip("\n")
