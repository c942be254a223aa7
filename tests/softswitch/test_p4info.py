"""P4Info: ids, aliases and contents, against known values; `tests/bmv2` has them against p4c itself."""

import pytest
from google.protobuf import text_format

from p4src.messages import p4info_pb2
from softswitch.compiler import CompileError, compile_source, ir, p4info, p4info_text
from tests.softswitch.lowering import source

POS = ir.Position("f", 1, 1)
EMPTY = ir.Struct("s", ())


def action(name: str, *params: ir.Param, notes: tuple[ir.Annotation, ...] = ()) -> ir.Action:
    return ir.Action(name, params, (), pos=POS, annotations=notes)


def param(name: str, width: int, *notes: ir.Annotation) -> ir.Param:
    return ir.Param(name, name, ir.Bits(width), notes)


def key(name: str, width: int, match: str, *notes: ir.Annotation) -> ir.Key:
    return ir.Key(name, ir.Var(ir.Bits(width), name, pos=POS), match, notes)


def table(name: str, *keys: ir.Key, **changes) -> ir.Table:
    fields = {
        "actions": (ir.ActionRef("NoAction"),),
        "default": ir.Invocation("NoAction", ()),
        "const_default": False,
        "entries": (),
        "const_entries": False,
        "size": 1024,
        "direct_counter": None,
        "annotations": (),
    }
    fields |= changes
    return ir.Table(name=name, keys=keys, pos=POS, **fields)


def exported(
    *objects: ir.Table | ir.Action | ir.Counter | ir.Register, notes: tuple[ir.Annotation, ...] = ()
) -> p4info_pb2.P4Info:
    objects = (action("NoAction"), *objects)

    def of(kind: type) -> dict:
        return {item.name: item for item in objects if isinstance(item, kind)}

    return p4info(
        ir.Program(
            name="test",
            hdr=EMPTY,
            meta=EMPTY,
            standard_metadata=EMPTY,
            errors=ir.Enum("error", ()),
            variables={},
            states={},
            verify=(),
            ingress=(),
            egress=(),
            compute=(),
            deparser=(),
            actions=of(ir.Action),
            called_actions=of(ir.Action),
            tables=of(ir.Table),
            registers=of(ir.Register),
            register_arrays={
                r.name: ir.RegisterArray(
                    r.name, ir.DataType("bits", scalar=r.type), r.size, (r.name,), pos=r.pos
                )
                for r in of(ir.Register).values()
            },
            counters=of(ir.Counter),
            annotations=notes,
        )
    )


def note(name: str, body: str = "", *elements: tuple[str, str | int]) -> ir.Annotation:
    return ir.Annotation(name, body, elements or None)


def test_ids_are_those_of_p4c():
    info = exported(
        table("InaIngress.admission.job"),
        action("InaIngress.admission.set_job"),
        ir.Counter("InaIngress.outcomes", "packets", 8192, None, pos=POS),
        ir.Counter("InaIngress.forwarding.bridge_counter", "packets", 8, "InaIngress.admission.job", pos=POS),
        ir.Register("InaIngress.aggregator.slot_psn", ir.Bits(32), 8192, pos=POS),
    )
    assert info.tables[0].preamble.id == 39326182
    assert {item.preamble.name: item.preamble.id for item in info.actions} == {
        "NoAction": 21257015,
        "InaIngress.admission.set_job": 21136923,
    }
    assert info.counters[0].preamble.id == 305344128
    assert info.direct_counters[0].preamble.id == 321500948
    assert info.registers[0].preamble.id == 369566662


def test_an_id_may_be_given_with_or_without_prefix():
    info = exported(
        table("a", annotations=(note("id", "5"),)),
        table("b", annotations=(note("id", "0x02000006"),)),
    )
    assert [item.preamble.id for item in info.tables] == [0x02000005, 0x02000006]
    assert not info.tables[0].preamble.annotations


def test_a_taken_id_is_stepped_over():
    given = exported(table("a")).tables[0].preamble.id
    info = exported(table("a"), table("b", annotations=(note("id", str(given)),)))
    assert [item.preamble.id for item in info.tables] == [given + 1, given]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("5", "5", "same @id"),
        ("0x01000005", "6", "another kind of object"),
        ("five", "6", "@id does not take 'five'"),
        ("0", "6", "@id does not take '0'"),
    ],
)
def test_bad_ids_are_refused(first: str, second: str, message: str):
    with pytest.raises(CompileError, match=message):
        exported(table("a", annotations=(note("id", first),)), table("b", annotations=(note("id", second),)))


def test_aliases_are_the_shortest_unique_suffixes():
    info = exported(action("x.f.drop"), action("x.g.drop"), action("x.only"), table("g.drop"))
    assert {item.preamble.name: item.preamble.alias for item in info.actions} == {
        "NoAction": "NoAction",
        "x.f.drop": "f.drop",
        "x.g.drop": "x.g.drop",
        "x.only": "only",
    }
    # Every suffix of this name is one of another: it remains whole.
    assert info.tables[0].preamble.alias == "g.drop"


TABLE = r"""
preamble { id: 41423567 name: "t" alias: "t" annotations: "@mark(1, 2)" doc { brief: "a table" } }
match_fields { id: 2 name: "a" bitwidth: 16 match_type: EXACT }
match_fields { id: 3 name: "b" bitwidth: 9 match_type: LPM annotations: "@format(IPV4_ADDRESS)" }
match_fields { id: 4 name: "c" bitwidth: 8 match_type: TERNARY }
match_fields { id: 5 name: "d" bitwidth: 8 match_type: RANGE }
match_fields { id: 6 name: "e" bitwidth: 8 match_type: OPTIONAL }
match_fields { id: 8 name: "g" bitwidth: 8 other_match_type: "near" }
action_refs { id: 28787759 }
action_refs { id: 21257015 scope: DEFAULT_ONLY annotations: "@defaultonly" }
const_default_action_id: 28787759
initial_default_action {
  action_id: 28787759
  arguments { param_id: 1 value: "\x05" }
  arguments { param_id: 2 value: "\x12\x34" }
}
direct_resource_ids: 327693041
size: 7
is_const_table: true
has_initial_entries: true
"""


def test_tables():
    info = exported(
        table(
            "t",
            key("a", 16, "exact", note("id", "2")),
            key("b", 9, "lpm", note("name", '"b"'), note("format", "IPV4_ADDRESS")),
            key("c", 8, "ternary"),
            key("d", 8, "range"),
            key("e", 8, "optional"),
            key("f", 8, "selector"),
            key("g", 8, "near"),
            actions=(
                ir.ActionRef("act"),
                ir.ActionRef("NoAction", "default_only", (note("defaultonly"),)),
            ),
            default=ir.Invocation("act", (5, 0x1234)),
            const_default=True,
            entries=(ir.ConstEntry((), ir.Invocation("NoAction", ()), 1),),
            const_entries=True,
            size=7,
            direct_counter="n",
            annotations=(note("brief", '"a table"'), note("mark", "1, 2")),
        ),
        action("act", param("x", 5), param("y", 32)),
        ir.Counter("n", "packets_and_bytes", 0, "t", pos=POS),
    )
    (message,) = info.tables
    assert message == text_format.Parse(TABLE, p4info_pb2.Table())
    assert info.direct_counters[0].direct_table_id == message.preamble.id
    assert info.direct_counters[0].spec.unit == p4info_pb2.CounterSpec.BOTH


def test_registers_and_counters():
    info = exported(
        ir.Register("r", ir.Bits(9), 4, pos=POS),
        ir.Register("s", ir.Bits(9, signed=True), 4, pos=POS),
        ir.Register("b", ir.Bool(), 4, pos=POS),
        ir.Counter("c", "bytes", 16, None, pos=POS),
    )
    specs = [register.type_spec for register in info.registers]
    assert specs[0].bitstring.bit.bitwidth == 9
    assert specs[1].bitstring.int.bitwidth == 9
    assert specs[2].WhichOneof("type_spec") == "bool"
    assert (info.counters[0].size, info.counters[0].spec.unit) == (16, p4info_pb2.CounterSpec.BYTES)


def test_hidden_objects_are_left_out():
    info = exported(table("t", annotations=(note("hidden"),)), action("a", notes=(note("hidden"),)))
    assert not info.tables
    assert [item.preamble.name for item in info.actions] == ["NoAction"]


def test_a_parameter_may_have_another_name():
    info = exported(action("a", param("x", 8, note("name", '"y"'))))
    assert info.actions[1].params[0].name == "y"


def test_a_name_may_be_put_together_from_strings():
    """It was the text between the first and the last quote, with quotes and signs."""
    named = 'action a() {} @name("ta" ++ "ble") table t { actions = { a; } default_action = a; }'
    info = p4info(compile_source(source("t.apply();", locals=named)))
    assert [table.preamble.name for table in info.tables] == ["C.table"]


def test_the_package_describes_itself():
    info = exported(
        notes=(
            note("pkginfo", "…", ("name", 'x "y"'), ("version", "1"), ("contact", 3), ("other", "")),
            note("platform_property", "…", ("multicast_group_table_size", 10), ("other", 3)),
            note("other"),
        )
    )
    package = info.pkg_info
    assert (package.name, package.version, package.arch) == ('x "y"', "1", "v1model")
    assert package.platform_properties.multicast_group_table_size == 10
    assert list(package.annotations) == ["@other"]


def test_structured_annotations_have_the_values_of_their_expressions() -> None:
    """The examples of the P4Runtime specification, section "Structured Annotations"."""
    text = (
        '@Empty[] @MixedExprList[1, "hello", true, 1 == 2, 5 + SIX]'
        ' @MixedKV[label = "text", my_bool = true, int_val = 2 * 3] table t { actions = { NoAction; } }'
    )
    info = p4info(compile_source(source("t.apply();", locals=text, declarations="const int SIX = 6;")))
    found = info.tables[0].preamble.structured_annotations
    assert [text_format.MessageToString(each, as_one_line=True) for each in found] == [
        'name: "Empty"',
        'name: "MixedExprList" expression_list { expressions { int64_value: 1 }'
        ' expressions { string_value: "hello" } expressions { bool_value: true }'
        " expressions { bool_value: false } expressions { int64_value: 11 } }",
        'name: "MixedKV" kv_pair_list { kv_pairs { key: "label" value { string_value: "text" } }'
        ' kv_pairs { key: "my_bool" value { bool_value: true } }'
        ' kv_pairs { key: "int_val" value { int64_value: 6 } } }',
    ]


def test_the_text_format_can_be_read_back():
    info = exported(table("t", key("a", 16, "exact")))
    text = p4info_text(info)
    assert text.startswith("# proto-file: p4/config/v1/p4info.proto\n")
    assert text_format.Parse(text, p4info_pb2.P4Info()) == info


INFO_SOURCE = """
enum bit<8> reason_t { HIT = 1, MISS = 2 }
enum bit<8> kind_t { DATA = 3 }
enum bit<8> unsent_t { OTHER = 4 }
@controller_header("packet_in") header in_t { bit<9> port; @id(7) bit<7> pad; reason_t reason; }
@p4runtime_translation("example.org/port", 32) type bit<9> port_t;
@unit("id") @from[1] type bit<16> vlan_t;
const vlan_t NONE = 0;
"""


def test_controller_headers_new_types_and_actions_bound_in_several_tables() -> None:
    locals_ = (
        "action only_called(inout bit<8> where) { where = 1; }"
        "action put(inout bit<8> where, port_t p, vlan_t v, kind_t k) { only_called(where); }"
        'table t { key = { (port_t) standard_metadata.ingress_port: exact @name("port"); }'
        " actions = { put(hdr.h.a); } }"
        "table u { actions = { put(hdr.h.b); NoAction; } }"
    )
    program = compile_source(
        source("t.apply(); u.apply();", locals=locals_, declarations=INFO_SOURCE), name="t.p4"
    )
    info = p4info(program)
    [header] = info.controller_packet_metadata
    assert header.preamble.name == "packet_in"
    assert [(m.id, m.name, m.bitwidth) for m in header.metadata] == [
        (1, "port", 9),
        (7, "pad", 7),
        (2, "reason", 8),
    ]
    enums = info.type_info.serializable_enums
    found = {name: [(m.name, m.value) for m in enums[name].members] for name in enums}
    assert found == {"reason_t": [("HIT", b"\1"), ("MISS", b"\2")], "kind_t": [("DATA", b"\3")]}
    types = info.type_info.new_types
    assert types["port_t"].translated_type.uri == "example.org/port"
    assert types["port_t"].translated_type.sdn_bitwidth == 32
    assert text_format.MessageToString(types["vlan_t"], as_one_line=True) == (
        'original_type { bitstring { bit { bitwidth: 16 } } } annotations: "@unit(\\"id\\")"'
        ' structured_annotations { name: "from" expression_list { expressions { int64_value: 1 } } }'
    )
    [put] = [action for action in info.actions if action.preamble.name != "NoAction"]
    assert [(p.name, p.bitwidth, p.type_name.name) for p in put.params] == [
        ("p", 32, "port_t"),
        ("v", 16, "vlan_t"),
        ("k", 8, ""),
    ]
    t, u = info.tables
    assert (t.match_fields[0].bitwidth, t.match_fields[0].type_name.name) == (32, "port_t")
    assert put.preamble.id == t.action_refs[0].id == u.action_refs[0].id


def test_new_types_take_constants_and_struct_names_stay_out() -> None:
    text = source("vlan_t v = NONE; hdr.h.a = (bit<8>) (bit<16>) v;", declarations=INFO_SOURCE)
    assert "vlan_t" in compile_source(text, name="t.p4").new_types
