"""The layout of all storage in C: headers, per-packet storage, variables, registers.

* Consecutive header fields that are byte-aligned and equally wide form an array if there are at least `RUN`
  of them, and so do registers of one group. So statements over the elements can become loops.
* Registers with the same number of cells that are always indexed by the same expression form one array of
  structs: a packet that accesses slot i accesses consecutive cache lines.
* Headers of `LARGE` bytes and more come last in the packet's struct and are not cleared for each packet.
  ``where`` states whether a header's fields are in storage, still in the frame, or zero.
* In programs for Tofino, a header that mostly passes unchanged has C integers only for its accessed fields.

Between Tofino's ingress and egress a packet is bytes, so every header is parsed and deparsed twice, and few
of its fields are read each time. Such a header is deparsed as a copy of the bytes from which it was
extracted, except that fields that may have been assigned are overwritten. This requires that the program uses
only fields of the header and does not copy or compare the header as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import (
    Path,
    all_statements,
    bodies,
    child_expressions,
    frame_sums,
    member_path,
    sources,
    targets,
)
from softswitch.engine.emit_c.text import Names, storage_bits, storage_type


@dataclass(slots=True)
class Uses:
    """The fields of headers that a program reads and writes, by the header's path."""

    read: defaultdict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))
    written: defaultdict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))
    whole: set[Path] = field(default_factory=set)  # used as a whole, with all its parts

    def is_by_field(self, header: Path) -> bool:
        """Return True if the program uses a header only field by field, not as a whole."""
        return not any(header[:end] in self.whole for end in range(1, len(header) + 1))

    def _mention(self, expr: ir.Expr, *, written: bool = False) -> None:
        match expr:
            case ir.Member(_, base, name) if isinstance(base.type, ir.Header) and (path := member_path(base)):
                (self.written if written else self.read)[path].add(name)
                if not isinstance(expr.type, ir.Scalar):
                    self.whole.add(path)
            case ir.IsValid(_, header) if member_path(header):
                pass
            case ir.Slice(_, base):
                self._mention(base, written=written)
                self._mention(base)
            case _:
                path = member_path(expr)
                if path is not None and not isinstance(expr.type, ir.Scalar):
                    self.whole.add(path)
                for child in child_expressions(expr):
                    if path is None:
                        self._mention(child)

    def _statement(self, s: ir.Stmt) -> None:
        header = (
            s.header
            if isinstance(s, ir.Extract | ir.Emit | ir.SetValidity) and member_path(s.header)
            else None
        )
        for target in targets(s):
            self._mention(target, written=True)
        for expr in sources(s):
            if expr is not header:
                self._mention(expr)


def find_uses(program: ir.Program) -> Uses:
    """Find the uses of the headers of a program."""
    uses = Uses()
    for body in bodies(program):
        sums = frame_sums(body)
        for statement in all_statements(body):
            if id(statement) in sums and isinstance(statement, ir.Extern):
                uses._mention(statement.args[0][0], written=True)
                uses._mention(statement.args[2][0])
            else:
                uses._statement(statement)
    subjects: Iterable[ir.Expr] = (
        subject
        for states in program.parsers.values()
        for state in states.values()
        for subject in state.transition.subjects
    )
    keys = (key.expr for table in program.tables.values() for key in table.keys)
    for expr in (*subjects, *keys):
        uses._mention(expr)
    return uses


RUN = 8
LARGE = 128
CACHE_LINE = 64
META_STRUCT = "packet->meta"
"""The struct with a Tofino packet's metadata, which captures read at the end of ingress."""
GRESS_STRUCTS = (
    *(META_STRUCT, "ingress_standard_metadata", "ingress_hdr"),
    *("egress_standard_metadata", "egress_hdr"),
)
"""The structs of a Tofino packet: first the structs of ingress, then the structs of egress."""
LARGE_STRUCT = "large"
"""The struct with the large headers of ingress and egress, after `GRESS_STRUCTS`; not cleared per packet."""


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """An element of an array of fields or registers; `array` is the C member name of the array."""

    array: str
    index: int


@dataclass(frozen=True, slots=True)
class FieldSlot:
    """One header field: its place in the C struct and on the wire."""

    name: str
    type: ir.Bits | ir.Bool | ir.VarBits
    member: str
    array: ArrayRef | None
    offset: int  # bits from the header's start, or from the varbit's end if behind it


@dataclass(frozen=True, slots=True)
class FieldRun:
    """Fields ``first .. first + count - 1`` of a header, kept as one array of C integers."""

    array: str
    first: int
    count: int
    bits: int


@dataclass(frozen=True, slots=True)
class HeaderLayout:
    """The C struct of a header type."""

    type: ir.Header
    c_name: str
    slots: tuple[FieldSlot, ...]
    runs: tuple[FieldRun, ...]
    fixed_bits: int
    varbit: FieldSlot | None
    dense: bool  # fields are in cells, as far as possible (wire.py)

    @property
    def by_name(self) -> dict[str, FieldSlot]:
        """Slots by field name."""
        return {slot.name: slot for slot in self.slots}

    @property
    def storage_bytes(self) -> int:
        """The approximate size of the C struct."""
        total = 0
        for slot in self.slots:
            match slot.type:
                case ir.VarBits(width):
                    total += 4 + width // 8
                case _ if is_wide(slot.type):
                    total += ir.width_of(slot.type) // 8
                case _:
                    total += storage_bits(ir.width_of(slot.type)) // 8
        return total


def lay_out_header(header: ir.Header, c_name: str, pos: ir.Position, *, dense: bool) -> HeaderLayout:
    """Choose the C members for the fields of a header type.

    With `dense`, small neighbouring fields share a C integer (a cell, see `wire`), unless the header has a
    varbit or arrays. Raises Unsupported if the header is not whole bytes.
    """
    slots: list[FieldSlot] = []
    names = Names()
    runs = list(_field_runs(header, names))
    in_run = {run.first + n: (run, n) for run in runs for n in range(run.count)}
    offset, fixed, varbit = 0, 0, None
    for position, (name, type_) in enumerate(header.fields):
        run_and_index = in_run.get(position)
        array = None
        if run_and_index is None:
            member = names.unique(name)
        else:
            run, index = run_and_index
            array = ArrayRef(run.array, index)
            member = f"{run.array}[{index}]"
        slot = FieldSlot(name, type_, member, array, offset)
        slots.append(slot)
        if isinstance(type_, ir.VarBits):
            if varbit is not None or offset % 8 or type_.max_width % 8:
                raise Unsupported(
                    f"varbit {name} of header {header.name} must be its only varbit, in whole bytes", pos
                )
            varbit, offset = slot, 0
            continue
        if is_wide(type_) and (offset % 8 or ir.width_of(type_) % 8):
            raise Unsupported(
                f"field {name} of header {header.name} has over 128 bits, so it must be whole bytes", pos
            )
        offset += ir.width_of(type_)
        fixed += ir.width_of(type_)
    if fixed % 8:
        raise Unsupported(f"header {header.name} has {fixed} bits: no multiple of 8", pos)
    dense = dense and bool(slots) and varbit is None and not runs
    return HeaderLayout(header, c_name, tuple(slots), tuple(runs), fixed, varbit, dense)


def _field_runs(header: ir.Header, names: Names) -> Iterator[FieldRun]:
    offset, start, count, bits = 0, 0, 0, 0
    for position, (name, type_) in enumerate((*header.fields, ("", None))):
        width = type_.width if isinstance(type_, ir.Bits) else 0
        fits = width in (8, 16, 32, 64) and offset % 8 == 0
        if count and (not fits or width != bits):
            if count >= RUN:
                first, last = header.fields[start][0], header.fields[start + count - 1][0]
                yield FieldRun(names.unique(f"{first}_to_{last}"), start, count, bits)
            count = 0
        if fits:
            if count == 0:
                start, bits = position, width
            count += 1
        offset += width if isinstance(type_, ir.Bits) else (1 if isinstance(type_, ir.Bool) else 0)
        del name


# --------------------------------------------------------------------------- places


@dataclass(frozen=True, slots=True)
class Raw:
    """A header that is deparsed as the bytes from which it was extracted, except for assigned fields.

    `at` is a C lvalue that holds P4_IN_FRAME + the header's position in the frame, or 0 if the header was not
    extracted. Extraction loads the fields in `taken`. Deparsing stores the fields in `given`, in groups of
    whole bytes.
    """

    at: str
    taken: tuple[FieldSlot, ...]
    given: tuple[tuple[FieldSlot, ...], ...]


@dataclass(frozen=True, slots=True)
class HeaderHome:
    """A header instance: C lvalues of its fields, of its validity and, for a large header, of its `where`."""

    layout: HeaderLayout
    text: str
    valid: str
    where: str | None
    raw: Raw | None = None


@dataclass(frozen=True, slots=True)
class StackHome:
    """A header stack: C arrays of its fields and validities, and its next index."""

    layout: HeaderLayout
    size: int
    text: str
    valid: str
    next: str


@dataclass(frozen=True, slots=True)
class ScalarHome:
    """A scalar of metadata, or a scalar variable: its type and its C lvalue."""

    type: ir.Scalar | ir.VarBits
    text: str


Home = HeaderHome | StackHome | ScalarHome


@dataclass(slots=True)
class Members:
    """Declarations of one C struct, filled while storage is laid out."""

    names: Names = field(default_factory=Names)
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Storage:
    """The program's members of ``struct p4_packet`` and ``struct variables``."""

    structs: dict[str, Members] = field(default_factory=dict)  # by root: hdr, meta, standard_metadata
    large: list[str] = field(default_factory=list)  # of hdr, behind its other members
    large_homes: list[HeaderHome] = field(default_factory=list)
    valid: Members = field(default_factory=Members)
    next: Members = field(default_factory=Members)
    where: Members = field(default_factory=Members)
    at: Members = field(default_factory=Members)
    raw_homes: list[HeaderHome] = field(default_factory=list)
    variables: Members = field(default_factory=Members)
    variable_valid: Members = field(default_factory=Members)
    variable_next: Members = field(default_factory=Members)


class Homes:
    """Maps paths (root name, then field names) of headers, stacks and scalars to their C storage (home)."""

    def __init__(
        self, program: ir.Program, headers: Mapping[ir.Header, HeaderLayout], *, by_gress: bool
    ) -> None:
        self.storage = Storage()
        self._headers = headers
        self._homes: dict[Path, Home] = {}
        self._by_gress = by_gress
        self._uses = find_uses(program) if by_gress else None
        for struct in GRESS_STRUCTS if by_gress else packet_roots(program):
            self.storage.structs[struct] = Members()
        for root, type_ in packet_roots(program).items():
            self._place((root,), type_)
        for name, type_ in program.variables.items():
            self._place((name,), type_, variable=True)

    def home(self, path: Path) -> Home:
        """Return the C storage of the header, stack or scalar at `path`."""
        return self._homes[path]

    def flags_under(self, root: str) -> list[str]:
        """Return the C lvalues of validities and next indices of headers below `root`."""
        flags = []
        for path, home in self._homes.items():
            if path[0] != root:
                continue
            if isinstance(home, HeaderHome):
                flags.append(home.valid)
            elif isinstance(home, StackHome):
                flags += [home.valid, home.next]
        return flags

    def scalars_under(self, root: str) -> Iterator[tuple[Path, ScalarHome]]:
        """Yield the scalars below `root` that are not in a header."""
        for path, home in self._homes.items():
            if path[0] == root and isinstance(home, ScalarHome):
                yield path, home

    def _place(self, path: Path, type_: ir.Type, *, variable: bool = False) -> None:
        if isinstance(type_, ir.Struct):
            for name, member in type_.fields:
                self._place((*path, name), member, variable=variable)
            return
        storage = self.storage
        struct = "" if variable else self._struct(path)
        members = storage.variables if variable else storage.structs[struct]
        name = members.names.unique("_".join(path if variable else path[1:]) or path[0])
        text = f"v->{name}" if variable else f"p->{struct}.{name}"
        match type_:
            case ir.Header():
                layout = self._headers[type_]
                valid = self._flag(path, "valid", variable=variable)
                where = None
                declaration = f"struct {layout.c_name} {name};"
                if path[0] == "hdr" and layout.storage_bytes >= LARGE:
                    where = "p->where." + storage.where.names.unique("_".join(path))
                    storage.where.lines.append(f"uint32_t {where.removeprefix('p->where.')};")
                    storage.large.append(declaration)
                    if self._by_gress:
                        text = f"p->{LARGE_STRUCT}.{name}"
                else:
                    members.lines.append(declaration)
                home = HeaderHome(layout, text, valid, where, self._raw(path, layout))
                if home.raw is not None:
                    storage.raw_homes.append(home)
                if where is not None:
                    storage.large_homes.append(home)
                self._homes[path] = home
            case ir.Stack(element, size):
                layout = self._headers[element]
                valid = self._flag(path, "valid", variable=variable, size=size)
                following = self._flag(path, "next", variable=variable)
                members.lines.append(f"struct {layout.c_name} {name}[{size}];")
                self._homes[path] = StackHome(layout, size, text, valid, following)
            case ir.VarBits(width):
                members.lines.append(f"struct p4_varbit{width} {name};")
                self._homes[path] = ScalarHome(type_, text)
            case _:
                if is_wide(type_):
                    members.lines.append(f"uint8_t {name}[{(ir.width_of(type_) + 7) // 8}];")
                else:
                    members.lines.append(f"{storage_type(type_)} {name};")
                self._homes[path] = ScalarHome(type_, text)

    def _struct(self, path: Path) -> str:
        """Return the name of the packet's C struct that contains the value at `path`.

        In programs for Tofino, ingress and egress have structs of their own.
        """
        if not self._by_gress:
            return path[0]
        if path[0] == "meta":
            return META_STRUCT
        return f"{path[1].partition('_')[0]}_{path[0]}"

    def _raw(self, path: Path, layout: HeaderLayout) -> Raw | None:
        """Return the `Raw` of a header; None if the program uses all fields, or the header as a whole."""
        uses = self._uses
        if uses is None or path[0] != "hdr" or layout.varbit is not None or layout.runs:
            return None
        written, touched = uses.written[path], uses.written[path] | uses.read[path]
        groups = list(whole_bytes(layout.slots))
        given = tuple(group for group in groups if any(slot.name in written for slot in group))
        touched |= {slot.name for group in given for slot in group}
        if not uses.is_by_field(path) or len(touched) == len(layout.slots):
            return None
        name = self.storage.at.names.unique("_".join(path))
        self.storage.at.lines.append(f"uint32_t {name};")
        return Raw(f"p->at.{name}", tuple(slot for slot in layout.slots if slot.name in touched), given)

    def _flag(self, path: Path, kind: str, *, variable: bool, size: int = 0) -> str:
        prefix = "variable_" if variable else ""
        members: Members = getattr(self.storage, prefix + kind)
        name = members.names.unique("_".join(path))
        c_type = "uint8_t" if kind == "valid" else "uint32_t"
        members.lines.append(f"{c_type} {name}{f'[{size}]' if size else ''};")
        return f"{'v' if variable else 'p'}->{kind}.{name}"


def whole_bytes(slots: Sequence[FieldSlot]) -> Iterator[tuple[FieldSlot, ...]]:
    """Yield the slots of a header in the smallest groups of whole bytes."""
    group: list[FieldSlot] = []
    for slot in slots:
        group.append(slot)
        assert not isinstance(slot.type, ir.VarBits)
        if (slot.offset + ir.width_of(slot.type)) % 8 == 0:
            yield tuple(group)
            group = []


def packet_roots(program: ir.Program) -> dict[str, ir.Type]:
    """Return the types of the structs that live as long as a packet, by name."""
    return {
        "standard_metadata": program.standard_metadata,
        "meta": program.meta,
        "hdr": program.hdr,
    }


def header_types(program: ir.Program) -> list[ir.Header]:
    """Return every header type that some storage or variable holds."""
    return list(dict.fromkeys(type_ for type_ in _stored(program) if isinstance(type_, ir.Header)))


def varbit_widths(program: ir.Program) -> set[int]:
    """Return the widths of all varbits that some storage or variable holds."""
    return {type_.max_width for type_ in _stored(program) if isinstance(type_, ir.VarBits)}


def _stored(program: ir.Program) -> Iterator[ir.Type]:
    for type_ in (*packet_roots(program).values(), *program.variables.values()):
        yield from _inside(type_)


def _inside(type_: ir.Type) -> Iterator[ir.Type]:
    """Yield a type and the types of its parts."""
    yield type_
    match type_:
        case ir.Stack(element, _):
            yield from _inside(element)
        case ir.Struct(fields=members) | ir.Header(fields=members):
            for _, member in members:
                yield from _inside(member)
        case _:
            pass
