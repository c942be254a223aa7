"""State of this process: init, shutdown, ranks, process sets, and collectives under way."""

from __future__ import annotations

import atexit
import functools
import itertools
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from hostlib.errors import NotInitialized, refuse
from hostlib.horovod.link import RankLink, connect
from hostlib.horovod.negotiation import ALL, Announcement, HorovodInternalError, Request
from hostlib.horovod.timeline import TensorTimeline
from hostlib.launch.launched_rank import LaunchedRank, launched_rank
from hostlib.launch.machines import by_machine, check, machine, meeting_place
from hostlib.meet.connections import private_path
from hostlib.settings import Settings

STALL_S: Final = 60.0
LEAVE_S: Final = 10.0
"""Longest wait, in seconds, for the other ranks in `shutdown`."""
_TORCHRUNS: Final = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")

_log = logging.getLogger("hostlib.horovod")

Started = tuple[Sequence[Any], Callable[[], Any]]
"""Torch's work objects to wait for, and a function that computes the result."""


class Submitted:
    """A collective that this rank has submitted."""

    def __init__(self, request: Request, start: Callable[[Announcement], Started]) -> None:
        """Keep this rank's `request`, and `start`, to be called once all ranks have submitted it."""
        self.request = request
        self._start = start
        self._started: Future[Started] = Future()

    def start(self, announcement: Announcement) -> None:
        """Start the collective, or record the reason why it cannot start."""
        try:
            if announcement.error:
                raise HorovodInternalError(announcement.error)
            self._started.set_result(self._start(announcement))
        except BaseException as error:
            self._started.set_exception(error)

    def fail(self, reason: str) -> None:
        """Record that the collective will never start, and why."""
        error = f"{self.request.kind} {self.request.name!r}: {reason}"
        self._started.set_exception(HorovodInternalError(error))

    def done(self) -> bool:
        """Return whether `result` would return, or raise, at once."""
        if not self._started.done() or self._started.exception():
            return self._started.done()
        return all(work.is_completed() for work in self._started.result()[0])

    def result(self) -> Any:
        """Wait for the result. Raises HorovodInternalError."""
        try:
            works, finish = self._started.result()
            for work in works:
                work.wait()
        except HorovodInternalError:
            raise
        except Exception as error:
            raise HorovodInternalError(
                f"{self.request.kind} {self.request.name!r}: {type(error).__name__}: {error}"
            ) from error
        return finish()


class ProcessSet:
    """Some of the ranks, for collectives among them; see `add_process_set`."""

    def __init__(self, ranks: Sequence[int] | None = None) -> None:
        """Set the members' ranks; None: all ranks."""
        self.ranks = None if ranks is None else sorted(set(ranks))
        self.process_set_id: int | None = ALL if ranks is None else None
        self.group: Any = None

    def included(self) -> bool:
        """Return whether this rank is a member."""
        return self.ranks is None or current().rank in self.ranks

    def size(self) -> int:
        """Return the number of members."""
        return current().size if self.ranks is None else len(self.ranks)

    def rank(self) -> int:
        """Return this rank's position in the set; -1 if it is no member."""
        if not self.included():
            return -1
        return current().rank if self.ranks is None else self.ranks.index(current().rank)

    def members(self) -> Sequence[int]:
        """Return the members' ranks, in order."""
        return range(current().size) if self.ranks is None else self.ranks

    def __repr__(self) -> str:
        return f"ProcessSet({self.ranks})"


global_process_set: Final = ProcessSet()


@dataclass(frozen=True, slots=True)
class Places:
    """A rank's position on its machine (local), and among the ranks with this local rank (cross)."""

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool


class World:
    """This rank's state between `init` and `shutdown`."""

    def __init__(self, sets: Sequence[ProcessSet]) -> None:
        self._owns_group = not dist.is_initialized()
        host = _init_process_group() if self._owns_group else ""
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        names: list[Any] = [None] * self.size
        dist.all_gather_object(names, (machine(), _reached_at(host)))
        machines = [name for name, _ in names]
        self.places = places(machines, self.rank)
        self.timeline = TensorTimeline(self.rank)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._operations: dict[tuple[int, str], Submitted] = {}
        self._numbers = itertools.count(1)
        self.optimizers: Counter[int | None] = Counter()
        """Number of optimizers made so far, by process set, to give their gradients different names."""
        self._unnamed: dict[tuple[int, str], itertools.count[int]] = {}
        self._sets = {ALL: global_process_set}
        self._last_joined: list[int] = []
        self._joined = threading.Event()
        self._lost = ""
        stall_s, limit_s = _stall_limits()
        host = names[0][1] if len({*machines}) > 1 else ""
        connections = connect(self.rank, self.size, host=host, share=_first_text)
        self.link = RankLink(connections, self.rank, self.size, stall_s=stall_s, limit_s=limit_s)
        self._thread = threading.Thread(target=self._serve, name="horovod operations", daemon=True)
        self._thread.start()
        path = os.environ.get("INA_TIMELINE") or os.environ.get("HOROVOD_TIMELINE")
        if path and path != "DYNAMIC":  # "DYNAMIC" allows Horovod to start one later
            self.timeline.start(path, mark_cycles=os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES") == "1")
        for each in sets:
            self.add_set(each)

    def unnamed(self, kind: str, process_set: int) -> str:
        """Return a name for a collective that has none; it is the same on all ranks of the process set."""
        with self._lock:
            return f"{kind}.noname.{next(self._unnamed.setdefault((process_set, kind), itertools.count(1)))}"

    def submit(self, request: Request, start: Callable[[Announcement], Started]) -> Submitted:
        """Submit a collective. Raises ValueError if a collective of the same name is under way."""
        if os.getpid() != self._process:
            raise NotInitialized(
                f"process {os.getpid()} was forked from rank {self.rank}'s process, and cannot submit calls"
            )
        operation, key = Submitted(request, start), (request.process_set, request.name)
        with self._lock:
            if self._lost:
                operation.fail(self._lost)
                return operation
            if key in self._operations:
                raise ValueError(
                    f"{request.kind} {request.name!r} is under way already: wait for it, or give another name"
                )
            self._operations[key] = operation
        self.timeline.begin(request.title, f"NEGOTIATE_{request.kind.upper()}")
        self.link.send({"request": asdict(request)})
        return operation

    def join(self) -> int:
        """Add zeros to other ranks' sums until all ranks have called this; return the last rank to do so."""
        self._joined.clear()
        self.link.send({"join": True})
        self._joined.wait()
        if self._lost:
            raise HorovodInternalError(f"join: {self._lost}")
        return self._last_joined[-1]

    def add_set(self, new: ProcessSet) -> ProcessSet:
        """Register a process set; all ranks call this, in the same order. Raises ValueError."""
        ranks = new.ranks
        known = [each.ranks for each in self._sets.values() if each.process_set_id]
        refuse(
            not ranks or not set(ranks) <= {*range(self.size)},
            f"the ranks of the process set are {ranks}, must be from 0 to {self.size - 1}, one at least",
            ValueError,
        )
        refuse(ranks in known, f"there is a process set of ranks {ranks} already", ValueError)
        assert ranks is not None
        new.process_set_id = number = next(self._numbers)
        self._sets[number] = new  # before any rank can use it, which is after `new_group`
        self.link.add_set(number, ranks)
        new.group = dist.new_group(ranks)
        return new

    def remove_set(self, old: ProcessSet) -> bool:
        """End the collectives of a process set; return whether the set was registered.

        Torch's group stays until all ranks have removed the set: other ranks' collectives may be under way.
        """
        if not old.process_set_id or old.process_set_id not in self._sets:  # ALL stays
            return False
        number, old.process_set_id = old.process_set_id, None
        self.link.send({"remove": number})
        return True

    def close(self, *, timeout_s: float = LEAVE_S) -> None:
        """Leave the job; wait `timeout_s` at most for the other ranks."""
        if os.getpid() != self._process:
            return
        until_s = time.monotonic() + timeout_s
        self.link.close(until_s=until_s)
        self._thread.join(max(0.0, until_s - time.monotonic()))
        self.timeline.stop()
        if self._owns_group and dist.is_initialized():
            dist.destroy_process_group()

    def _serve(self) -> None:
        """Carry out announced collectives in order, until the ranks can no longer agree."""
        try:
            while (announced := self.link.announced.get()) is not None:
                self._carry_out(announced)
        except Exception as error:
            _log.exception("no collective can be carried out any more")
            why = f"cannot carry out collectives any more: {type(error).__name__}: {error}"
            self.link.lost = self.link.lost or f"this rank {why}"
            self.link.send({"leave": True, "why": why})
        self._give_up()

    def _carry_out(self, announced: Announcement) -> None:
        if announced.last_joined is not None:
            with self._lock:
                self._unnamed.clear()  # ranks that joined early have counted fewer
            self._last_joined.append(announced.last_joined)
            self._joined.set()
            return
        if announced.set_removed:
            self._drop(self._sets.pop(announced.process_set).group)
            return
        with self._lock:
            operation = self._operations.pop((announced.process_set, announced.name), None)
        self.timeline.cycle()
        if operation is not None:
            self.timeline.end(operation.request.title)
            self.timeline.begin(operation.request.title, operation.request.kind.upper())
            operation.start(announced)
        elif announced.zeros and not announced.error and self._is_in(announced.process_set):
            self._add_zeros(announced)

    def _is_in(self, number: int) -> bool:
        """Return whether this rank is in a process set.

        An unknown set was registered by other ranks without this rank, and they use it already.
        """
        return number in self._sets and self._sets[number].included()

    def _drop(self, group: Any) -> None:
        """Destroy the group of a process set, if this rank is in it."""
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)

    def _add_zeros(self, announced: Announcement) -> None:
        from hostlib.horovod.reductions import add_zeros  # that module imports this one

        try:
            add_zeros(self._sets[announced.process_set], announced)
        except Exception:
            _log.exception("the zeros of %s, after join(), could not be added", announced.name)

    def _give_up(self) -> None:
        with self._lock:
            self._lost = self.link.lost or "this rank has shut down"
            left = list(self._operations.values())
            self._operations.clear()
        for operation in left:
            operation.fail(self._lost)
        self._joined.set()


_world: World | None = None


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | None = None) -> None:
    """Join the other ranks of ``ina run``, torchrun, mpirun or srun.

    Without effect if this process has joined already.

    Raises:
        ValueError: `comm` is given, but the launcher determines the ranks.
        ConfigError, RendezvousError: as in `hostlib.init`.
    """
    global _world
    if comm:
        raise ValueError("comm is given, must be None: the launcher determines the ranks")
    if _world is None:
        _world = World(process_sets or ())
        atexit.register(_leave_quickly)


def shutdown() -> None:
    """Carry out the collectives that all ranks have submitted so far, then leave the job."""
    global _world
    if _world is not None:
        leaving, _world = _world, None
        leaving.close()
        atexit.unregister(_leave_quickly)


def is_initialized() -> bool:
    """Return whether `init` has been called."""
    return _world is not None


def current() -> World:
    """Return the state that `init` made. Raises ValueError before `init`, as Horovod does."""
    if _world is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _world


def places(machines: Sequence[str], rank: int) -> Places:
    """Return a rank's `Places`; `machines` names the machine of each rank."""
    everywhere = by_machine(machines)
    on_machine = next(ranks for ranks in everywhere if rank in ranks)
    local = on_machine.index(rank)
    cross = [ranks[local] for ranks in everywhere if len(ranks) > local]
    sizes = {len(ranks) for ranks in everywhere}
    return Places(local, len(on_machine), cross.index(rank), len(cross), len(sizes) == 1)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """The place where the ranks of a launch meet at each call of `init`.

    It outlives `shutdown`. Otherwise a rank that calls `init` again while another rank still shuts down would
    reach a store that is about to end, or read old addresses.
    """

    store: dist.Store
    rank: int
    size: int
    host: str = ""
    """The address of rank 0's machine, if that is known."""
    rounds: Iterator[int] = field(default_factory=itertools.count)

    def join(self) -> str:
        """Create torch's default group; return the address of rank 0's machine, "" if unknown."""
        store = dist.PrefixStore(f"horovod/{next(self.rounds)}", self.store)
        dist.init_process_group("ina", store=store, rank=self.rank, world_size=self.size)
        return self.host


def _init_process_group() -> str:
    """Create torch's default group; return the address of rank 0's machine, "" if unknown."""
    if "RANK" in os.environ:
        return _torchruns(*(os.environ.get(name) for name in _TORCHRUNS)).join()
    if (place := launched_rank()) is not None:
        return _launchers(place).join()
    return _Meeting(dist.HashStore(), rank=0, size=1).join()


@functools.cache
def _torchruns(*_: str | None) -> _Meeting:
    """Return the meeting place for these values of the variables `_TORCHRUNS`."""
    return _Meeting(*next(rendezvous("env://")))


@functools.cache
def _launchers(place: LaunchedRank) -> _Meeting:
    """Return the meeting place of ranks of ``ina run``, mpirun or srun."""
    if place.local_size != place.size:
        settings = Settings.from_environment()
        check(settings, first=place.rank == 0)
        host, port = meeting_place(place, settings)
        store = dist.TCPStore(host, port, place.size, is_master=place.rank == 0)
        return _Meeting(store, place.rank, place.size, host)
    store = dist.FileStore(str(private_path("store", f"{place.launch} {os.getppid()}")), place.size)
    return _Meeting(store, place.rank, place.size)


def _reached_at(host: str) -> str:
    """Return the address at which other machines reach rank 0; correct only on rank 0's machine."""
    if found := host or os.environ.get("MASTER_ADDR"):
        return found
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return socket.gethostname()


def _first_text(text: str) -> str:
    """Return the `text` of rank 0, at all ranks."""
    texts = [text]
    dist.broadcast_object_list(texts, 0)
    return texts[0]


def _stall_limits() -> tuple[float, float]:
    """Return the seconds that a collective may wait for ranks: until a warning, and until the job's end.

    Rank 0 warns, and ends the job. A time of 0 means never. As in Horovod, the job does not end without an
    earlier warning.
    """
    checks = os.environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") in ("", "0")
    stall_s = max(0.1, _seconds("HOROVOD_STALL_CHECK_TIME_SECONDS", STALL_S)) if checks else 0.0
    limit_s = _seconds("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0)
    if 0 < limit_s < stall_s:
        _log.warning(
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is %g, less than HOROVOD_STALL_CHECK_TIME_SECONDS, %g: "
            "stalled collectives will not end the job",
            limit_s,
            stall_s,
        )
        limit_s = 0.0
    return stall_s, limit_s


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise ValueError(f"{name} is {text!r}, must be a number of seconds") from None


def _leave_quickly() -> None:
    if _world is not None:
        _world.close(timeout_s=0.5)
