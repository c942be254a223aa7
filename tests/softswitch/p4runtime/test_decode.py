"""Messages to entries, without a program: what is malformed is refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import compile_source, ir, p4info
from softswitch.p4runtime import translate
from softswitch.p4runtime.errors import InvalidArgument, PermissionDenied, RequestError
from softswitch.p4runtime.schema import ActionInfo, FieldInfo, ParamInfo, Schema, TableSchema, from_p4info
from softswitch.p4runtime.translate import decode, encode
from tests.softswitch.lowering import source
from tests.softswitch.p4runtime.clients import lpm

SET = ActionInfo(0x01000001, "set", (ParamInfo(1, "port", 9), ParamInfo(2, "mac", 48)))
DROP = ActionInfo(0x01000002, "drop", ())
ONLY_DEFAULT = ActionInfo(0x01000003, "only_default", ())
ONLY_ENTRIES = ActionInfo(0x01000004, "only_entries", ())
ELSEWHERE = ActionInfo(0x01000005, "elsewhere", ())

ACL = TableSchema(
    id=0x02000001,
    name="acl",
    fields=(
        FieldInfo(1, "exact", "exact", 16),
        FieldInfo(2, "ternary", "ternary", 32),
        FieldInfo(3, "range", "range", 16),
        FieldInfo(4, "optional", "optional", 8),
    ),
    actions={SET.id: "", DROP.id: "", ONLY_DEFAULT.id: "default_only", ONLY_ENTRIES.id: "table_only"},
    const_entries=False,
    const_default=False,
    direct_counter=None,
    size=16,
)
ROUTES = TableSchema(
    0x02000002, "routes", (FieldInfo(1, "dst", "lpm", 32),), {DROP.id: ""}, False, False, None, 16
)
SCHEMA = Schema(
    tables={t.id: t for t in (ACL, ROUTES)},
    actions={a.id: a for a in (SET, DROP, ONLY_DEFAULT, ONLY_ENTRIES, ELSEWHERE)},
)

EXACT = p4.FieldMatch(field_id=1, exact=p4.FieldMatch.Exact(value=b"\5"))


def ternary(value: bytes, mask: bytes) -> Any:
    return p4.FieldMatch(field_id=2, ternary=p4.FieldMatch.Ternary(value=value, mask=mask))


def range_(low: bytes, high: bytes) -> Any:
    return p4.FieldMatch(field_id=3, range=p4.FieldMatch.Range(low=low, high=high))


def action(id_: int, *params: tuple[int, bytes]) -> Any:
    return p4.TableAction(
        action=p4.Action(action_id=id_, params=[p4.Action.Param(param_id=i, value=v) for i, v in params])
    )


@pytest.mark.parametrize(
    ("table", "matches", "message"),
    [
        (ACL, [], "the match lacks 'exact'"),
        (
            ACL,
            [p4.FieldMatch(field_id=9)],
            r"no match field 9; the match fields are 'exact' \(1\), 'ternary' \(2\)",
        ),
        (ACL, [EXACT, EXACT], "'exact' of table 'acl' is given twice"),
        (ACL, [lpm(b"\1", 16)], "'exact' of 'acl' is exact; the request gives lpm"),
        (ACL, [p4.FieldMatch(field_id=1)], "the request gives nothing"),
        (ACL, [EXACT, ternary(b"\1", b"\0")], "mask 0; leave a don't-care field out"),
        (ACL, [EXACT, ternary(b"\3", b"\1")], "0x3 under mask 0x1: bits outside the mask must be 0"),
        (ACL, [EXACT, range_(b"\5", b"\4")], "from 0x5 down to 0x4"),
        (ACL, [EXACT, range_(b"\0", b"\xff\xff")], "ranges over all values"),
        (ROUTES, [lpm(b"\0", 0)], "prefix length 0"),
        (ROUTES, [lpm(b"\0", 33)], "it must be 1 to 32"),
        (ROUTES, [lpm(b"\x0a\0\0\1", 8)], "bits beyond the prefix must be 0"),
    ],
)
def test_a_bad_match_is_refused(table: TableSchema, matches: list[Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        translate.match_key(table, matches)


@pytest.mark.parametrize(
    ("sent", "default", "kind", "message"),
    [
        (action(SET.id, (1, b"\1")), False, InvalidArgument, "'set' lacks a value for 'mac'"),
        (
            action(SET.id, (1, b"\1"), (1, b"\1")),
            False,
            InvalidArgument,
            "'port' of action 'set' is given twice",
        ),
        (
            action(SET.id, (7, b"\1")),
            False,
            InvalidArgument,
            r"no parameter 7; the parameters are 'port' \(1\)",
        ),
        (
            action(SET.id, (1, b"\2\0"), (2, b"\1")),
            False,
            InvalidArgument,
            "'port' of 'set' is 0x0200, 10 bits",
        ),
        (
            action(ELSEWHERE.id),
            False,
            InvalidArgument,
            "'acl' does not have action 'elsewhere'; the actions are 'set'",
        ),
        (action(77), False, InvalidArgument, "does not have an action with id 0x0000004d"),
        (p4.TableAction(), False, InvalidArgument, "not an empty one"),
        (p4.TableAction(action_profile_member_id=1), False, InvalidArgument, "it has no action profile"),
        (action(ONLY_DEFAULT.id), False, PermissionDenied, "for the default of 'acl' only"),
        (action(ONLY_ENTRIES.id), True, PermissionDenied, "for entries of 'acl' only"),
    ],
)
def test_a_bad_action_is_refused(sent: Any, default: bool, kind: type[RequestError], message: str) -> None:
    with pytest.raises(kind, match=message):
        translate.invocation(SCHEMA, ACL, sent, default=default)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("lpm", lpm(b"\3", 32)),
        (
            "ternary",
            p4.FieldMatch(field_id=1, ternary=p4.FieldMatch.Ternary(value=b"\3", mask=b"\xff\xff\xff\xff")),
        ),
    ],
)
def test_a_translated_key_matches_zeros_beyond_its_width(kind: str, given: Any) -> None:
    """The server refused the masks that the specification wants: all ones, as wide as in P4Info."""
    declared = '@p4runtime_translation("example.org/port", 32) type bit<9> port_t;'
    table = (
        f'table t {{ key = {{ (port_t) standard_metadata.ingress_port: {kind} @name("port"); }}'
        " actions = { NoAction; } }"
    )
    program = compile_source(source("t.apply();", declarations=declared, locals=table))
    (schema,) = from_p4info(p4info(program), program).tables.values()
    patterns = translate.match_key(schema, [given])
    assert patterns == (ir.Pattern("mask", 3, 0x1FF),)
    back = p4.TableEntry()
    translate.match_field(back.match, schema.fields[0], *patterns)
    assert list(back.match) == [given]


def test_priorities_are_for_tables_whose_entries_overlap() -> None:
    assert translate.priority(ACL, 1) == 1
    assert translate.priority(ROUTES, 0) == 0
    with pytest.raises(InvalidArgument, match="need a priority above 0"):
        translate.priority(ACL, 0)
    with pytest.raises(InvalidArgument, match="it must be 0"):
        translate.priority(ROUTES, 1)


def test_an_unknown_table_is_named_for_what_it_is() -> None:
    with pytest.raises(InvalidArgument, match="0x01000001 is not a table but the action 'set'"):
        translate.table(SCHEMA, SET.id)
    with pytest.raises(
        InvalidArgument, match=r"no table has id 0x00000007; the tables are 'acl' \(0x02000001\)"
    ):
        translate.table(SCHEMA, 7)


@st.composite
def patterns(draw: st.DrawFn, field: FieldInfo) -> ir.Pattern:
    full = (1 << field.width) - 1
    values = st.integers(0, full)
    if field.match == "exact":
        return ir.Pattern("exact", draw(values))
    if draw(st.booleans()):
        return ir.Pattern("any")
    if field.match == "optional":
        return ir.Pattern("exact", draw(values))
    if field.match == "range":
        low, high = sorted((draw(values), draw(values)))
        return ir.Pattern("any") if (low, high) == (0, full) else ir.Pattern("range", low, high)
    if field.match == "lpm":
        length = draw(st.integers(1, field.width))
        mask = full ^ full >> length
    else:
        mask = draw(st.integers(1, full))
    return ir.Pattern("mask", draw(values) & mask, mask)


@st.composite
def entries(draw: st.DrawFn, table: TableSchema) -> ir.ConstEntry:
    chosen = draw(st.sampled_from([SET, DROP] if SET.id in table.actions else [DROP]))
    return ir.ConstEntry(
        tuple(draw(patterns(f)) for f in table.fields),
        ir.Invocation(chosen.name, tuple(draw(st.integers(0, (1 << p.width) - 1)) for p in chosen.params)),
        draw(st.integers(1, 1000)) if table.takes_priority else 0,
    )


@given(st.sampled_from([ACL, ROUTES]).flatmap(lambda t: st.tuples(st.just(t), entries(t))))
def test_what_is_encoded_decodes_to_the_same(case: tuple[TableSchema, ir.ConstEntry]) -> None:
    table, entry = case
    message = translate.table_entry(SCHEMA, table, entry)
    assert translate.table(SCHEMA, message.table_id) is table
    assert translate.match_key(table, message.match) == entry.patterns
    assert translate.invocation(SCHEMA, table, message.action, default=False) == entry.invocation
    assert translate.priority(table, message.priority) == entry.priority


def test_an_action_that_came_before_decodes_as_it_did_and_long_ones_are_not_kept() -> None:
    padded = bytes(300) + b"\1"
    for _ in range(2):
        for number in range(3000):
            sent = action(SET.id, (1, b"\7"), (2, number.to_bytes(6, "big")))
            assert translate.called(SCHEMA, ACL, sent) == ir.Invocation("set", (7, number))
        assert translate.called(SCHEMA, ACL, action(SET.id, (1, padded), (2, padded))).args == (1, 1)
        with pytest.raises(PermissionDenied):
            translate.called(SCHEMA, ACL, action(ONLY_DEFAULT.id))
    assert all(len(data) < 100 for data in ACL.decoded)


def test_a_table_keeps_so_many_actions_decoded() -> None:
    for number in range(5000):
        translate.called(SCHEMA, ACL, action(SET.id, (1, b"\1"), (2, number.to_bytes(6, "big"))))
        assert len(ACL.decoded) <= 4096
    assert translate.called(SCHEMA, ACL, action(SET.id, (1, b"\1"), (2, b"\3"))).args == (1, 3)


@given(st.integers(0, 2**256), st.integers(0, 10))
def test_encoding_is_the_shortest_that_decodes_to_the_same(value: int, zeros: int) -> None:
    data = encode(value)
    assert decode(bytes(zeros) + data, 257, "x") == value
    assert len(data) == 1 or data[0] != 0


@pytest.mark.parametrize(
    ("data", "width", "message"),
    [
        (b"\x02\x00", 9, r"x is 0x0200, 10 bits; .* bit<9>, at most 0x1ff"),
        (b"", 8, "x is empty"),
    ],
)
def test_a_value_too_wide_or_empty_is_refused(data: bytes, width: int, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        decode(data, width, "x")
