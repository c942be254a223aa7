"""Join ranks that torchrun, mpirun or srun has started to a job, which the first of these ranks admits.

Each rank sends the first rank its machine and a random challenge. The first rank admits the job by ``ina
admit`` (`hostlib.launch.hosting`), to which it passes the ranks of each machine. It answers with the
configurations and all challenges. On one machine the answer is sent over a Unix socket of this user alone,
whose name is a digest of the launcher's own identifiers, which all ranks of a launch have. On several
machines the answer is sealed with the secret of ``INA_TOKEN``, because the channel, such as torch's store, is
open to every process that can connect. A rank refuses an answer without its challenge, which belongs to an
earlier launch.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from hostlib.addresses import Address
from hostlib.config import JobConfig
from hostlib.errors import ConfigError, InaError, RendezvousError, refuse
from hostlib.io.interfaces import known_as
from hostlib.launch.hosting import MEETING_S, admit
from hostlib.launch.launched_rank import LaunchedRank, slurm_meeting
from hostlib.launch.sealed import require, seal, unseal
from hostlib.meet import MessageError, encode
from hostlib.meet.connections import FirstRank, MissingRanks, Place, next_message, private_path, reach
from hostlib.settings import EMBEDDED, Settings
from hostlib.version import version

LEAST_SECRET: Final = 16
HERE_S: Final = 60.0
"""Longest wait, in seconds, for the other ranks if all ranks are on this machine."""
_ANSWER_BYTES: Final = 1 << 24
_CANNOT_SEAL: Final = "cannot seal"
"""Message of the first rank if it has no secret to seal its message with; so the other ranks do not wait."""


class Channel(Protocol):
    """Carries a text from each rank to the first rank, and one text back."""

    @property
    def is_open(self) -> bool:
        """Return whether other processes could read or write the channel's texts."""

    def gather(self, text: str) -> Sequence[str]:
        """Send this rank's text to the first rank; return all ranks' texts there, [] at other ranks."""

    def spread(self, text: str) -> str:
        """Return the first rank's text; the other ranks' texts are ignored."""


def machine() -> str:
    """Return a unique name of this machine; each network namespace counts as a machine."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/net').stat().st_ino}"


@dataclass(frozen=True, slots=True)
class RankArrival:
    """A rank's message to the first rank."""

    machine: str
    challenge: str
    """Random text that the answer must contain."""
    version: str
    """Version of the library at this rank."""
    known_as: tuple[str, ...]
    """Names and addresses of the machine, as a cluster file may have them."""

    @classmethod
    def here(cls) -> Self:
        """Return this process's message."""
        return cls(machine(), secrets.token_hex(16), version(), known_as())

    def to_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps([self.machine, self.challenge, self.version, *self.known_as])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a message from `to_text`. Raises RendezvousError for an invalid text."""
        try:
            machine, challenge, version, name, *more = map(str, json.loads(text))
        except (TypeError, ValueError) as error:
            raise RendezvousError(
                f"a rank sent rank 0 the message {text[:100]!r}, must be its machine and a challenge: do all "
                "machines have the same version of ina?"
            ) from error
        return cls(machine, challenge, version, (name, *more))


def by_machine(names: Sequence[str]) -> list[list[int]]:
    """Return the ranks of each machine; machines are in the order of their first ranks.

    `names` has the machine of each rank.
    """
    found: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        found.setdefault(name, []).append(rank)
    return list(found.values())


def check(settings: Settings, *, first: bool) -> None:
    """Raise ConfigError if a setting that ranks on several machines need is missing.

    The `first` rank needs a cluster, a controller or a switch, because it admits the job for all.
    """
    names_machines = settings.cluster or settings.given or settings.controller
    refuse(
        first and settings.switch == EMBEDDED and not names_machines,
        "the ranks are on several machines, and neither INA_CLUSTER, INA_CONTROLLER nor INA_SWITCH is "
        "set: give a cluster file, the URL of a controller, or the grpc://host:port of a switch that all "
        "reach (docs/guides/torch-launchers.md)",
    )
    refuse(
        len(settings.token) < LEAST_SECRET,
        f"the ranks are on several machines, and INA_TOKEN has {len(settings.token)} characters: it must "
        f"be a secret of {LEAST_SECRET} or more, the same on all (openssl rand -hex 32)",
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
    """Return this rank's configuration in a job, which the first rank admits here.

    Args:
        channel: Channel that has carried `own` to the first rank.
        rank: This rank.
        own: This rank's message.
        arrivals: Messages of all ranks, in their order; used at the first rank only.
        listen: Address of the first rank's machine where ranks of several machines meet; used at the first
            rank only.
        settings: Settings of this process.

    Raises:
        ConfigError: the settings are wrong.
        RendezvousError: the job was not admitted, or a rank has another token.
    """
    if rank:
        if channel.is_open:
            check(settings, first=False)
        text = channel.spread("")
        if text == _CANNOT_SEAL:
            raise RendezvousError(f"rank {rank}: rank 0 cannot seal its message; see the error of rank 0")
        message = json.loads(unseal(text, settings.token) if channel.is_open else text)
        if message["challenges"][rank : rank + 1] != [own.challenge]:
            raise RendezvousError(
                f"rank {rank}: the first rank's message answers another launch: it is an old message sent "
                "again, or two launches use one meeting point"
            )
        if "failed" in message:
            raise RendezvousError(f"rank {rank}: rank 0 could not admit the job: {message['failed']}")
        return JobConfig.from_json(json.dumps(message["configs"][rank]))

    try:
        if channel.is_open:
            check(settings, first=True)
    except ConfigError:
        channel.spread(_CANNOT_SEAL)
        raise
    challenges = [each.challenge for each in arrivals]
    try:
        machines = by_machine([each.machine if channel.is_open else "" for each in arrivals])
        _check_versions(own, arrivals)
        names = [arrivals[ranks[0]].known_as for ranks in machines]
        hierarchical = _is_hierarchical(machines, settings)
        address = _address(listen) if channel.is_open else None
        configs = admit(settings, machines, names, hierarchical=hierarchical, listen=address)
    except InaError as error:
        _answer(channel, settings, challenges, failed=str(error))
        raise
    _answer(channel, settings, challenges, configs=configs)
    return JobConfig.from_json(json.dumps(configs[0]))


def _answer(channel: Channel, settings: Settings, challenges: Sequence[str], **fields: Any) -> None:
    text = json.dumps({"challenges": challenges, **fields})
    channel.spread(seal(text, settings.token) if channel.is_open else text)


def _is_hierarchical(machines: Sequence[Sequence[int]], settings: Settings) -> bool:
    """Return whether each machine sums its ranks first. Raises ConfigError."""
    crowded = len(machines) > 1 and any(len(ranks) > 1 for ranks in machines)
    if crowded and settings.hierarchical is False:
        raise ConfigError(
            "INA_HIERARCHICAL is 0, but one of several machines has several ranks: a switch's port has one "
            "worker, so each machine must sum its ranks first (INA_HIERARCHICAL=1, or unset)"
        )
    # a port of a cluster's switch has one worker
    of_cluster = len(machines) == 1 and (settings.cluster or settings.given or settings.controller)
    return bool(settings.hierarchical or crowded or of_cluster)


def _check_versions(own: RankArrival, arrivals: Sequence[RankArrival]) -> None:
    for rank, arrival in enumerate(arrivals):
        if arrival.version != own.version:
            raise RendezvousError(
                f"rank {rank} on {arrival.known_as[0]} has ina {arrival.version}, rank 0 on "
                f"{own.known_as[0]} has {own.version}: install the same version on all machines"
            )


def launched(place: LaunchedRank, settings: Settings) -> JobConfig:
    """Join a job with the launcher's other ranks, on one machine or several; return its configuration.

    Ranks on several machines meet at ``INA_MEETING``. For the errors see `meet`.
    """
    if place.local_size == place.size:
        return here(place.rank, place.size, place.launch, settings)
    check(settings, first=place.rank == 0)
    address = meeting_place(place, settings)
    try:
        found = RankChannel(place.rank, place.size, address, settings.token, settings.meeting_s)
    except ConfigError as error:
        raise ConfigError(f"INA_MEETING: {error}") from error
    return _met(found, place.rank, address[0], settings)


def here(rank: int, size: int, key: str, settings: Settings) -> JobConfig:
    """Join a job whose ranks are all on this machine; return its configuration. For the errors see `meet`.

    Args:
        rank: This rank.
        size: Number of ranks of the job.
        key: Text that is the same for the ranks of this job, and for no other on this machine.
        settings: Settings of this process.
    """
    channel = RankChannel(rank, size, private_path("launch", key), key, HERE_S)
    return _met(channel, rank, None, settings)


def _met(channel: RankChannel, rank: int, listen: str | None, settings: Settings) -> JobConfig:
    with contextlib.closing(channel):
        own = RankArrival.here()
        try:
            texts = channel.gather(own.to_text())
        except MissingRanks as error:
            challenges = [text and RankArrival.from_text(text).challenge for text in channel.arrived]
            _answer(channel, settings, challenges, failed=str(error))
            raise
        arrivals = [RankArrival.from_text(text) for text in texts]
        return meet(channel, rank, own, arrivals, listen, settings)


def meeting_place(place: LaunchedRank, settings: Settings) -> Address:
    """Return the address where ranks without a common store meet. Raises ConfigError if it is unknown."""
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


class RankChannel:
    """A channel that uses connections to the first rank, for ranks without a common store."""

    def __init__(self, rank: int, size: int, place: Place, secret: str, patience_s: float) -> None:
        """Start to listen for connections, if this is the first rank.

        Args:
            rank: This rank.
            size: Number of ranks.
            place: Address or path where the first rank listens.
            secret: Secret of all ranks.
            patience_s: Longest wait for other ranks.

        Raises ConfigError if the first rank cannot listen at `place`.
        """
        self.is_open = not isinstance(place, Path)
        self._rank, self._size, self._place = rank, size, place
        self._secret, self._patience_s = secret, patience_s
        self._own = ""
        self._connection: socket.socket | None = None
        self._first = None if rank else FirstRank(place, range(1, size), size, secret)

    @property
    def arrived(self) -> Sequence[str]:
        """Texts of all ranks, at the first rank; "" for a rank that has not connected."""
        assert self._first is not None
        return [self._own, *(self._first.texts.get(rank, "") for rank in range(1, self._size))]

    def gather(self, text: str) -> Sequence[str]:
        """Send this rank's text to the first rank; return all ranks' texts there, [] at other ranks.

        Raises MissingRanks, at the first rank, if some ranks do not connect; RendezvousError at others.
        """
        if self._first is None:
            place, secret, patience_s = self._place, self._secret, self._patience_s
            self._connection = reach(place, self._rank, self._size, secret, patience_s, text=text)
            return []
        self._own = text
        self._first.gather(self._patience_s)
        return self.arrived

    def spread(self, text: str) -> str:
        """Return the first rank's text. Raises RendezvousError if it is gone."""
        if self._first is not None:
            for connection in self._first.connections.values():
                with contextlib.suppress(OSError):
                    connection.sendall(encode({"text": text}))
            return text
        assert self._connection is not None
        try:
            answer = next_message(self._connection, self._patience_s + MEETING_S, longest=_ANSWER_BYTES)
        except (OSError, MessageError) as error:
            raise RendezvousError(
                f"rank {self._rank}: rank 0 is gone, or does not answer ({error}); see the output of rank 0"
            ) from error
        return str(answer.get("text"))

    def close(self) -> None:
        """Close the connections."""
        if self._first is not None:
            self._first.close()
        for each in (*(self._first.connections.values() if self._first else ()), self._connection):
            if each is not None:
                each.close()
