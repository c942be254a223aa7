"""A switch behind a P4Runtime server, as a `controller.switches.target.Target`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.errors import NoProgram
from controller.p4runtime_shim.client import P4RuntimeClient, Tls, entities_of
from controller.p4runtime_shim.codec import Codec
from controller.switches.programs import ProgramBundle
from controller.switches.session import SwitchSession
from controller.switches.target import (
    CounterCell,
    Entry,
    Kind,
    Match,
    MulticastGroup,
    ProgramInfo,
    TableEntry,
)

_log = logging.getLogger("controller")


@dataclass(frozen=True, slots=True)
class _LastAnswer:
    """A switch's last answer to a read: the encoded answers, the entries in them, and each entity decoded."""

    codec: Codec | None = None
    answers: tuple[bytes, ...] = ()
    rows: tuple[TableEntry | MulticastGroup, ...] = ()
    decoded: Mapping[bytes, Entry | None] = field(default_factory=dict)


class P4RuntimeTarget:
    """The switch at `address`, ``host:port`` or ``unix:path``.

    With `at_once`, raises Unreachable if the switch does not answer.
    """

    def __init__(
        self, address: str, *, device_id: int = 0, tls: Tls | None = None, at_once: bool = True
    ) -> None:
        self._client = client = P4RuntimeClient(address, device_id=device_id, tls=tls, at_once=at_once)
        self._codec: Codec | None = None
        self._answers: dict[tuple[str, ...], _LastAnswer] = {}
        """The last answer to `read`, by the names of the tables."""
        self._cookie = 0
        """The cookie of the codec's program; 0: the program has no cookie."""
        self.address, self.close, self.turn = client.address, client.close, client.mastership
        self.expect_silence = client.expect_silence

    @property
    def restarts(self) -> int:
        """Number of observed restarts of the switch."""
        return self._client.restarts

    @property
    def undisturbed(self) -> bool:
        """True if no other controller was primary since this object's last `turn`, as election ids show.

        Valid only within `turn`.
        """
        return self._client.undisturbed

    def program(self) -> ProgramInfo | None:
        """Read the tables, actions and counters of the loaded program; None if there is no program."""
        cookie = self._client.cookie()
        if self._codec is None or not cookie or cookie != self._cookie:
            p4info = self._client.p4info()
            if p4info is None:
                self._codec = None
                return None
            self._codec, self._cookie = Codec(p4info), cookie
        return replace(self._codec.program, cookie=cookie)

    def runs(self, bundle: ProgramBundle) -> bool:
        """Return whether the switch runs this program, according to its cookie.

        A program that was loaded without a cookie counts as `bundle` if both have the same P4Info. A warning
        is then logged, because the code of the two programs may still differ.
        """
        cookie = self._client.cookie()
        if cookie:
            same = cookie == bundle.cookie
        elif same := bool(self._client.p4info() == bundle.p4info):
            _log.warning(
                "the program of the switch at %s has no cookie; it is taken for '%s', whose P4Info it has",
                self.address,
                bundle.name,
            )
        if same:
            self._codec, self._cookie = Codec(bundle.p4info), cookie
        return same

    def load(self, bundle: ProgramBundle, replacing: Callable[[ProgramInfo, int], None]) -> bool:
        """Make the switch run this program; return False if it already runs it.

        `replacing` is called before another program is replaced; see `Target.load`.
        """
        if self.runs(bundle):
            return False
        loaded = self._client.p4info()
        if loaded is not None:
            self._codec, self._cookie = Codec(loaded), self._client.cookie()
            entries = self._client.read([self._codec.every_row()])
            running = replace(self._codec.program, cookie=self._cookie)
            replacing(running, sum(not e.table_entry.is_const for e in entries))
        self._client.load(bundle.p4info, bundle.device_config, cookie=bundle.cookie)
        self._codec, self._cookie = Codec(bundle.p4info), bundle.cookie
        return True

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        """Insert, modify or delete entries, as `kind` says. Raises Refused and UnknownName."""
        self._client.write(kind, list(map(self.codec.encode, entries)))

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        """Read all entries of these tables except default entries, and all multicast groups."""
        codec, tables = self.codec, tuple(tables)
        answers = self._client.read_bytes([*map(codec.all_rows, tables), codec.all_groups()])
        last = self._answers.get(tables, _LastAnswer())
        if last.codec is codec and last.answers == answers:
            return list(last.rows)
        # Most rows are unchanged since the last read: these are not decoded again.
        known = last.decoded if last.codec is codec else {}
        found: dict[bytes, Entry | None] = {}
        rows: list[TableEntry | MulticastGroup] = []
        for entity in entities_of(answers):
            key = entity.SerializeToString()
            row = known[key] if key in known else codec.decode(entity)
            found[key] = row
            if isinstance(row, TableEntry | MulticastGroup):
                rows.append(row)
        self._answers[tables] = _LastAnswer(codec, answers, tuple(rows), found)
        return rows

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        """Read the entry of a table that matches these values exactly, None if there is none."""
        codec = self.codec
        rows = map(codec.decode, self._client.read([codec.row(table, match)]))
        return next((row for row in rows if isinstance(row, TableEntry)), None)

    def read_counter(self, counter: str, cells: Sequence[int]) -> list[int]:
        """Read the packet counts of some cells of a counter; 0 for cells that the switch does not return."""
        codec = self.codec
        found = map(codec.decode, self._client.read([codec.cell(counter, index) for index in cells]))
        packets = {cell.index: cell.packets for cell in found if isinstance(cell, CounterCell)}
        return [packets.get(index, 0) for index in cells]

    @property
    def codec(self) -> Codec:
        """The codec for the loaded program, with its names and ids. Raises NoProgram if there is none."""
        if self._codec is None and self.program() is None:
            raise NoProgram(f"the switch at {self.address} has no program loaded")
        assert self._codec is not None
        return self._codec


# ---------------------------------------------------------------------------
# Connections to switches behind P4Runtime servers.


def connect(
    address: str, *, device_id: int = 0, tls: Tls | None = None, at_once: bool = True
) -> SwitchSession:
    """Return a session with a switch behind a P4Runtime server.

    Args:
        address: ``host:port`` or ``unix:path`` of the server.
        device_id: The switch's device id at the server.
        tls: The files for TLS; None: no TLS.
        at_once: Wait until the server answers; otherwise the first call connects.

    Raises Unreachable, if `at_once`, for a server that does not answer.
    """
    return SwitchSession(P4RuntimeTarget(address, device_id=device_id, tls=tls, at_once=at_once))
