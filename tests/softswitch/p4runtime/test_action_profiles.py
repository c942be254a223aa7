"""Action profiles and selectors over P4Runtime, down to the packets that both back ends send."""

from typing import Any

import pytest

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import CompileError, compile_source, p4info
from softswitch.p4runtime import action_profiles, tables
from softswitch.p4runtime.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    RequestError,
    ResourceExhausted,
    Unimplemented,
)
from softswitch.p4runtime.state import Bundle, Loading, prepare
from tests.softswitch.lowering import source
from tests.softswitch.p4runtime.clients import compiled, config

LOCALS = """
    action to(bit<9> port) { standard_metadata.egress_spec = port; }
    action mark(bit<8> v) { hdr.h.d = v; standard_metadata.egress_spec = 99; }
    action_profile(4) profile;
    action_selector(HashAlgorithm.identity, 8, 10) selector;
    table direct {
        key = { hdr.h.a: exact; }
        actions = { to; NoAction; }
        implementation = profile;
    }
    table hashed {
        key = { hdr.h.a: exact; hdr.h.b: selector; hdr.h.c: selector; }
        actions = { to; mark; NoAction; }
        implementation = selector;
        default_action = mark(1);
    }
    table again {
        key = { hdr.h.c: ternary; hdr.h.b: selector; }
        actions = { to; mark; NoAction; }
        implementation = selector;
    }
"""
APPLY = """
    if (hdr.h.d == 1) { direct.apply(); }
    else if (hdr.h.d == 2) { if (!again.apply().hit) { standard_metadata.egress_spec = 98; } }
    else { switch (hashed.apply().action_run) { to: { hdr.h.d = 0x70; } mark: { hdr.h.c = 0x71; } } }
"""
TEXT = source(APPLY, locals=LOCALS)


@pytest.fixture(params=["interpreter", "compiled"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    return prepare(config(compiled(TEXT)), Loading(backend=request.param))


def profile_id(bundle: Bundle, name: str) -> int:
    return next(profile.id for profile in bundle.schema.profiles.values() if profile.name == name)


def member(bundle: Bundle, profile: str, number: int, action: str = "", value: int = 0) -> Any:
    message = p4.ActionProfileMember(action_profile_id=profile_id(bundle, profile), member_id=number)
    if action:
        message.action.action_id = bundle.schema.action_named(action).id
        message.action.params.add(param_id=1, value=bytes([value]))
    return message


def group(bundle: Bundle, number: int, **weights: int) -> Any:
    message = p4.ActionProfileGroup(action_profile_id=profile_id(bundle, "C.selector"), group_id=number)
    for name, weight in weights.items():
        message.members.add(member_id=int(name[1:]), weight=weight)
    return message


def entry(bundle: Bundle, name: str, key: int, **action: int) -> Any:
    table = next(table for table in bundle.schema.tables.values() if table.name == name)
    message = p4.TableEntry(table_id=table.id, action=p4.TableAction(**action))
    match = message.match.add(field_id=1)
    if table.takes_priority:
        match.ternary.value, match.ternary.mask, message.priority = bytes([key]), b"\xff", 1
    else:
        match.exact.value = bytes([key])
    return message


def sent(bundle: Bundle, a: int, b: int, c: int, d: int) -> int:
    _, verdict = bundle.pipeline.ingress(bytes([a, b, c, d]), 0)
    return verdict.egress_spec


INSERT, MODIFY, DELETE = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE


def test_entries_run_what_their_member_runs(bundle: Bundle) -> None:
    action_profiles.write_member(bundle, INSERT, member(bundle, "C.profile", 7, "C.to", 3))
    written = entry(bundle, "C.direct", 5, action_profile_member_id=7)
    tables.write(bundle, INSERT, written)
    assert sent(bundle, 5, 0, 0, 1) == 3
    assert list(tables.read(bundle, p4.TableEntry(table_id=written.table_id, match=written.match))) == [
        written
    ]
    action_profiles.write_member(bundle, MODIFY, member(bundle, "C.profile", 7, "C.to", 4))
    assert sent(bundle, 5, 0, 0, 1) == 4
    with pytest.raises(FailedPrecondition, match="in use"):
        action_profiles.write_member(bundle, DELETE, member(bundle, "C.profile", 7))
    tables.write(bundle, DELETE, written)
    action_profiles.write_member(bundle, DELETE, member(bundle, "C.profile", 7))
    assert sent(bundle, 5, 0, 0, 1) == 0
    assert list(action_profiles.read("member", bundle, p4.ActionProfileMember())) == []


def test_a_hash_spreads_packets_over_the_members_of_a_group(bundle: Bundle) -> None:
    for number in (1, 2, 3):
        action_profiles.write_member(bundle, INSERT, member(bundle, "C.selector", number, "C.to", number))
    action_profiles.write_group(bundle, INSERT, group(bundle, 9, m1=1, m2=2))
    for name in ("C.hashed", "C.again"):
        tables.write(bundle, INSERT, entry(bundle, name, 5, action_profile_group_id=9))
    # The hash is the number that the selector's fields make, modulo the weights.
    ports = [sent(bundle, 5, b, 0, 0) for b in range(3)]
    assert ports == [[1, 2, 2][(b << 8) % 3] for b in range(3)]
    assert [sent(bundle, 0, b, 5, 2) for b in range(3)] == [1, 2, 2]
    action_profiles.write_member(bundle, MODIFY, member(bundle, "C.selector", 2, "C.mark", 8))
    assert [sent(bundle, 0, b, 5, 2) for b in range(3)] == [1, 99, 99]
    action_profiles.write_group(bundle, MODIFY, group(bundle, 9, m3=1))
    assert [sent(bundle, 0, b, 5, 2) for b in range(3)] == [3, 3, 3]
    action_profiles.write_group(bundle, MODIFY, group(bundle, 9))
    assert sent(bundle, 0, 1, 5, 2) == 0
    assert sent(bundle, 0, 1, 6, 2) == 98
    assert sent(bundle, 6, 0, 0, 0) == 99  # the default action
    tables.write(bundle, MODIFY, entry(bundle, "C.hashed", 5, action_profile_member_id=1))
    assert sent(bundle, 5, 1, 0, 0) == 1
    assert list(action_profiles.read("group", bundle, p4.ActionProfileGroup())) == [group(bundle, 9)]


def refused(bundle: Bundle, kind: int, message: Any) -> RequestError:
    write = {
        p4.ActionProfileMember: action_profiles.write_member,
        p4.ActionProfileGroup: action_profiles.write_group,
        p4.TableEntry: tables.write,
    }[type(message)]
    with pytest.raises(RequestError) as caught:
        write(bundle, kind, message)
    return caught.value


def test_what_does_not_fit_is_refused(bundle: Bundle) -> None:
    one = member(bundle, "C.selector", 1, "C.to", 1)
    action_profiles.write_member(bundle, INSERT, one)
    action_profiles.write_group(bundle, INSERT, group(bundle, 1, m1=1))
    tables.write(bundle, INSERT, entry(bundle, "C.hashed", 1, action_profile_group_id=1))
    sized = group(bundle, 1, m1=1)
    sized.max_size = 3
    cases: list[tuple[int, Any, type[RequestError]]] = [
        (INSERT, one, AlreadyExists),
        (MODIFY, member(bundle, "C.selector", 2, "C.to", 1), NotFound),
        (DELETE, one, FailedPrecondition),
        (INSERT, member(bundle, "C.profile", 1, "C.mark", 1), InvalidArgument),
        (INSERT, group(bundle, 2, m5=1), NotFound),
        (INSERT, group(bundle, 2, m1=0), InvalidArgument),
        *((INSERT, group(bundle, 2, m1=weight), ResourceExhausted) for weight in (9, 2**31 - 1)),
        (MODIFY, sized, InvalidArgument),
        (INSERT, member(bundle, "C.selector", 0, "C.to", 1), InvalidArgument),
        (INSERT, group(bundle, 0, m1=1), InvalidArgument),
        (DELETE, group(bundle, 1), FailedPrecondition),
        (DELETE, group(bundle, 2), NotFound),
        (INSERT, entry(bundle, "C.hashed", 2, action_profile_group_id=2), NotFound),
        (INSERT, entry(bundle, "C.direct", 2, action_profile_group_id=1), InvalidArgument),
    ]
    for kind, message, error in cases:
        assert isinstance(refused(bundle, kind, message), error), message
    bare = entry(bundle, "C.hashed", 2)
    bare.action.action.action_id = bundle.schema.action_named("C.to").id
    assert isinstance(refused(bundle, INSERT, bare), InvalidArgument)
    bare.action.action_profile_action_set.SetInParent()
    assert isinstance(refused(bundle, INSERT, bare), InvalidArgument)  # an empty set
    choices = bare.action.action_profile_action_set.action_profile_actions
    to = p4.Action(action_id=bundle.schema.action_named("C.to").id)
    to.params.add(param_id=1, value=b"\5")
    choices.add(action=to, weight=1, watch_port=b"\1")
    assert isinstance(refused(bundle, INSERT, bare), Unimplemented)
    choices[0].ClearField("watch_port")
    for choices[0].weight in (9, 2**31 - 1):
        assert isinstance(refused(bundle, INSERT, bare), ResourceExhausted)
    bare.table_id = entry(bundle, "C.direct", 2).table_id
    assert isinstance(refused(bundle, INSERT, bare), InvalidArgument)
    assert sent(bundle, 1, 0, 0, 0) == 1


def test_p4info_has_the_profiles_and_nothing_of_their_inside() -> None:
    info = compiled(TEXT).info
    found = {p.preamble.name: (p.size, p.with_selector, len(p.table_ids)) for p in info.action_profiles}
    assert found == {"C.profile": (4, False, 1), "C.selector": (8, True, 2)}
    assert {t.preamble.name for t in info.tables} == {"C.direct", "C.hashed", "C.again"}
    hashed = next(t for t in info.tables if t.preamble.name == "C.hashed")
    assert [field.name for field in hashed.match_fields] == ["hdr.h.a"]
    assert len(hashed.action_refs) == 3
    assert all("#" not in action.preamble.name for action in info.actions)


@pytest.mark.parametrize("size", ["2", "32w2", "0x2"])
def test_a_largest_group_is_what_the_annotation_says(size: str) -> None:
    limited = compiled(TEXT.replace("action_selector(", f"@max_group_size({size}) action_selector(", 1))
    profiles = limited.info.action_profiles
    found = {p.preamble.alias: (p.max_group_size, list(p.preamble.annotations)) for p in profiles}
    assert found == {"profile": (0, []), "selector": (2, [])}
    bundle = prepare(config(limited), Loading(backend="interpreter"))
    action_profiles.write_member(bundle, INSERT, member(bundle, "C.selector", 1, "C.to", 1))
    assert isinstance(refused(bundle, INSERT, group(bundle, 1, m1=3)), ResourceExhausted)
    larger = group(bundle, 1, m1=2)
    larger.max_size = 3
    assert isinstance(refused(bundle, INSERT, larger), InvalidArgument)
    action_profiles.write_group(bundle, INSERT, group(bundle, 1, m1=2))
    assert isinstance(refused(bundle, INSERT, one_shot(bundle, 1, 4, 5, 6)), ResourceExhausted)


def test_a_group_of_any_max_size_fits_its_profile(bundle: Bundle) -> None:
    action_profiles.write_member(bundle, INSERT, member(bundle, "C.selector", 1, "C.to", 1))
    larger = group(bundle, 1, m1=9)
    larger.max_size = 99
    assert isinstance(refused(bundle, INSERT, larger), ResourceExhausted)


@pytest.mark.parametrize("size", ["0", "-1", "x", "4294967296"])
def test_a_largest_group_of_no_size_is_refused(size: str) -> None:
    text = TEXT.replace("action_selector(", f"@max_group_size({size}) action_selector(", 1)
    with pytest.raises(CompileError, match="@max_group_size does not take"):
        p4info(compile_source(text))


def one_shot(bundle: Bundle, key: int, *ports: int) -> Any:
    message = entry(bundle, "C.hashed", key)
    for port in ports:
        choice = message.action.action_profile_action_set.action_profile_actions.add(weight=1)
        choice.action.action_id = bundle.schema.action_named("C.to").id
        choice.action.params.add(param_id=1, value=bytes([port]))
    return message


def test_entries_bring_sets_of_actions_with_them(bundle: Bundle) -> None:
    tables.write(bundle, INSERT, one_shot(bundle, 1, 5, 6))
    assert {sent(bundle, 1, 0, c, 0) for c in range(8)} == {5, 6}
    (read,) = tables.read(bundle, p4.TableEntry())
    assert read == one_shot(bundle, 1, 5, 6)
    tables.write(bundle, MODIFY, one_shot(bundle, 1, 7))
    assert {sent(bundle, 1, 0, c, 0) for c in range(8)} == {7}
    assert isinstance(refused(bundle, INSERT, one_shot(bundle, 1, 8)), AlreadyExists)
    assert {sent(bundle, 1, 0, c, 0) for c in range(8)} == {7}
    tables.write(bundle, DELETE, one_shot(bundle, 1))
    assert bundle.pipeline.entries("C.hashed#members") == []
    assert list(action_profiles.read("group", bundle, p4.ActionProfileGroup())) == []
