"""A switch as controllers use it: entries and counters by name, for any kind of connection.

`controller.p4runtime_shim.target` reaches a switch over P4Runtime. A switch in the same process needs no
connection: any object with the methods of `Target` serves as a switch.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from controller.errors import UnknownName

if TYPE_CHECKING:
    from controller.switches.programs import ProgramBundle


# ---------------------------------------------------------------------------
# Entries as plain values, by name: as written to a switch and read from it.


@dataclass(frozen=True, slots=True)
class Lpm:
    """A longest-prefix match: a field's first `prefix_len` bits must equal the first bits of `value`."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """A ternary match: a field must equal `value` in the bits where `mask` has ones."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """A range match: a field must lie between `low` and `high`, both included."""

    low: int
    high: int


Match = int | Lpm | Ternary | Range
"""Match of one field; a number is an exact (or optional) match."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table entry. Fields left out of `match` match anything.

    With `default`, the entry is the table's default entry. The switch stores `metadata` with the entry, for
    controllers.
    """

    table: str
    match: Mapping[str, Match]
    action: str
    params: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    default: bool = False
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """A multicast group: pairs of port and replication id."""

    id: int
    replicas: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CounterCell:
    """One cell of an indirect counter, with the packets and bytes that it has counted."""

    counter: str
    index: int
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RegisterCell:
    """One cell of a register of numbers."""

    register: str
    index: int
    value: int = 0


Entry = TableEntry | MulticastGroup | CounterCell | RegisterCell


Kind = Literal["INSERT", "MODIFY", "DELETE"]
"""How an update changes an entry."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a program.

    `size` is the number of entries that it has room for, `keys` has the kind of match (``exact``, …) of each
    field, and `actions` the names of its actions.
    """

    size: int
    keys: Mapping[str, str]
    actions: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """The tables, counters, registers and actions of a program, by name.

    `counters` (only indirect counters) and `registers` map each name to a number of cells. `actions` maps the
    name of each action to the number of bits of each parameter. `cookie` identifies a running program; 0: the
    program has no cookie, or the cookie was not read.
    """

    tables: Mapping[str, TableInfo]
    counters: Mapping[str, int]
    registers: Mapping[str, int]
    actions: Mapping[str, Mapping[str, int]]
    cookie: int = 0
    architecture: str = "v1model"
    physical: ProgramInfo | None = None
    """For a Tofino program of this project, the description with the names in the program's source; all other
    fields then have the names of the v1model programs (`controller.switches.tofino_rows.as_seen`). None for
    all other programs."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A version of a switch's content: between two equal revisions, program and entries have not changed.

    `booted_ns` is the Unix time, in nanoseconds, at which the switch was started. `writes` is the number of
    requests since then that may have changed its content.
    """

    booted_ns: int
    writes: int


class Target(Protocol):
    """One switch. Every method may raise SwitchError; write only inside `turn`."""

    address: str
    """Address of the switch, which is its name in messages."""

    @property
    def restarts(self) -> int:
        """Number of observed restarts of the switch; a restart is noticed only when a `turn` begins."""

    @property
    def undisturbed(self) -> bool:
        """True if no other controller can have written since this controller's last `turn`; else False.

        Valid only within `turn`.
        """

    def close(self) -> None:
        """Disconnect from the switch; its entries stay."""

    def expect_silence(self) -> None:
        """Limit the next call's wait for any answer to 1 s, because the switch seems to hang."""

    def turn(self, *, timeout_s: float) -> AbstractContextManager[None]:
        """Be the only controller that writes during the block; do not nest blocks.

        Raises NotPrimary if another controller stays the primary for `timeout_s`.
        """

    def program(self) -> ProgramInfo | None:
        """Return the description of the loaded program, or None if there is none."""

    def runs(self, bundle: ProgramBundle) -> bool:
        """Return True if the switch runs this program."""

    def load(self, bundle: ProgramBundle, replacing: Callable[[ProgramInfo, int], None]) -> bool:
        """Make the switch run this program; return False if it already runs it.

        Before another program is replaced, `replacing` is called with the old program's description and the
        number of entries in its tables. If `replacing` raises an error, the old program stays.
        """

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        """Insert, modify or delete entries, as `kind` says, in unspecified order.

        Raises Refused if the update of any entry failed; the updates of all other entries took effect. Raises
        UnknownName, with nothing written, if the program has no such table, field, action, parameter or
        counter.
        """

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        """Read all entries of these tables except default entries, and all multicast groups."""

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        """Read the entry of a table with this match; None if there is none."""

    def read_counter(self, counter: str, cells: Sequence[int]) -> list[int]:
        """Read the packet counts of some cells of a counter."""


_T = TypeVar("_T")


def find(kind: str, name: str, known: Mapping[str, _T]) -> _T:
    """Look up an object of a program by its name. Raises UnknownName."""
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=3)
    choices = (
        f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(sorted(known)) or 'none'}"
    )
    raise UnknownName(f"the program has no {kind} '{name}'; {choices}")
