"""Value sets over P4Runtime: members replaced at once, matched by the parser in both back ends."""

from collections.abc import Sequence
from typing import Any

import pytest

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import compile_source, p4info, preprocess_file
from softswitch.engine.cache import compile_once
from softswitch.engine.pipeline import Copy
from softswitch.p4runtime import tables
from softswitch.p4runtime.errors import InvalidArgument, NotFound, ResourceExhausted
from softswitch.p4runtime.state import Backend, Bundle, Loading, prepare
from tests.softswitch.lowering import source

PARSER = """
    value_set<bit<8>>(2) plain;
    value_set<pair_t>(4) pairs;
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { plain: more; default: check; } }
    state check { transition select(hdr.h.a, hdr.h.b) { (1, 2): more; pairs: more; _: accept; } }
    state more { packet.extract(hdr.g); transition accept; }
"""
TEXT = source(
    "if (hdr.g.isValid()) { standard_metadata.egress_spec = 7; }",
    declarations="struct pair_t { @match(ternary) bit<8> x; bit<8> y; }",
    parser=PARSER,
)


@pytest.fixture(params=["interpreter", "compiled"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    backend: Backend = request.param
    file = tmp_path_factory.mktemp("sets") / "sets.p4"
    file.write_text(TEXT)
    text = preprocess_file(file)
    config = p4.ForwardingPipelineConfig(p4info=p4info(compile_once(text)), p4_device_config=text.encode())
    return prepare(config, Loading(backend=backend))


def set_id(bundle: Bundle, name: str) -> int:
    return next(v.id for v in bundle.schema.value_sets.values() if v.name == name)


def members(bundle: Bundle, name: str, *matches: Sequence[p4.FieldMatch]) -> Any:
    entry = p4.ValueSetEntry(value_set_id=set_id(bundle, name))
    for match in matches:
        entry.members.add().match.extend(match)
    return entry


def exact(field: int, value: int) -> Any:
    return p4.FieldMatch(field_id=field, exact=p4.FieldMatch.Exact(value=bytes([value])))


def ternary(field: int, value: int, mask: int) -> Any:
    return p4.FieldMatch(
        field_id=field, ternary=p4.FieldMatch.Ternary(value=bytes([value]), mask=bytes([mask]))
    )


def parsed_more(bundle: Bundle, a: int, b: int) -> bool:
    packet, verdict = bundle.pipeline.ingress(bytes([a, b, 0, 0, 9, 9, 9, 9]), 0)
    bundle.pipeline.egress(packet, Copy())
    return verdict.egress_spec == 7


def test_members_decide_the_transition(bundle: Bundle) -> None:
    assert not parsed_more(bundle, 5, 0)
    assert parsed_more(bundle, 1, 2)
    tables.write_value_set(bundle, p4.Update.MODIFY, members(bundle, "P.plain", [exact(1, 5)], [exact(1, 6)]))
    assert parsed_more(bundle, 5, 0)
    assert parsed_more(bundle, 6, 0)
    assert not parsed_more(bundle, 7, 0)
    tables.write_value_set(bundle, p4.Update.MODIFY, members(bundle, "P.plain", [exact(1, 7)]))
    assert not parsed_more(bundle, 5, 0)
    assert parsed_more(bundle, 7, 0)
    given = members(bundle, "P.pairs", [ternary(1, 0x20, 0xF0), exact(2, 3)])
    tables.write_value_set(bundle, p4.Update.MODIFY, given)
    assert parsed_more(bundle, 0x2F, 3)
    assert not parsed_more(bundle, 0x2F, 4)
    assert list(tables.read_value_set(bundle, p4.ValueSetEntry(value_set_id=set_id(bundle, "P.pairs")))) == [
        given
    ]
    assert len(list(tables.read_value_set(bundle, p4.ValueSetEntry()))) == 2


def test_what_does_not_fit_is_refused_and_changes_nothing(bundle: Bundle) -> None:
    tables.write_value_set(bundle, p4.Update.MODIFY, members(bundle, "P.plain", [exact(1, 7)]))
    with pytest.raises(InvalidArgument, match="can only be modified"):
        tables.write_value_set(bundle, p4.Update.INSERT, members(bundle, "P.plain"))
    with pytest.raises(ResourceExhausted, match="3 members for"):
        tables.write_value_set(
            bundle, p4.Update.MODIFY, members(bundle, "P.plain", *([exact(1, n)] for n in (1, 2, 3)))
        )
    with pytest.raises(InvalidArgument, match="twice"):
        tables.write_value_set(
            bundle, p4.Update.MODIFY, members(bundle, "P.plain", [exact(1, 1)], [exact(1, 1)])
        )
    with pytest.raises(NotFound, match="no value set has id"):
        tables.write_value_set(bundle, p4.Update.MODIFY, p4.ValueSetEntry(value_set_id=1))
    assert parsed_more(bundle, 7, 0)


def test_p4info_has_the_sets_and_no_table_of_theirs() -> None:
    info = p4info(compile_source(TEXT))
    assert [(v.preamble.name, v.size, [m.name for m in v.match]) for v in info.value_sets] == [
        ("P.plain", 2, [""]),
        ("P.pairs", 4, ["x", "y"]),
    ]
    assert not info.tables
    assert not [action for action in info.actions if "#" in action.preamble.name]


def test_the_field_of_a_set_of_numbers_has_no_name_in_p4info_but_one_in_messages(bundle: Bundle) -> None:
    empty = p4.FieldMatch(field_id=1, exact=p4.FieldMatch.Exact(value=b""))
    with pytest.raises(InvalidArgument, match="match field 'value' is empty"):
        tables.write_value_set(bundle, p4.Update.MODIFY, members(bundle, "P.plain", [empty]))
