"""Loading programs: verified as a whole, swapped as a whole."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from p4src.messages import p4info_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service
from softswitch.p4runtime.errors import PermissionDenied
from softswitch.p4runtime.state import Device
from tests.softswitch.p4runtime.clients import Client, Names, Source, config, primary, refused
from tests.softswitch.p4runtime.test_service import probe

KINDS, REQUEST = p4.GetForwardingPipelineConfigRequest, p4.SetForwardingPipelineConfigRequest


@pytest.fixture
def empty(empty_service: Service, connect: Callable[[Service], Any]) -> Iterator[Client]:
    """A client of a switch without a program."""
    stub = connect(empty_service)
    with primary(stub, 1):
        yield Client(stub, 1)


def loaded(client: Client, kind: int = KINDS.ALL) -> Any:
    return client.stub.GetForwardingPipelineConfig(KINDS(response_type=kind))


def sending(names: Names, port: int) -> Any:
    """The default entry that sends everything to a port."""
    return names.entry("exact_table", action=names.action("send", bytes([port])), is_default_action=True)


@pytest.mark.parametrize("wrapper", [b"", b"\x08\x01\x1a\x85\x01"], ids=["source", "P4DeviceConfig of PI"])
def test_a_loaded_program_reads_back(empty: Client, source: Source, wrapper: bytes) -> None:
    sent = config(
        source,
        cookie=p4.ForwardingPipelineConfig.Cookie(cookie=42),
        p4_device_config=wrapper + source.text.encode(),
    )
    empty.configure("VERIFY_AND_COMMIT", sent)
    assert loaded(empty).config == sent
    assert not loaded(empty, KINDS.COOKIE_ONLY).config.HasField("p4info")
    assert loaded(empty, KINDS.COOKIE_ONLY).config.cookie.cookie == 42
    assert loaded(empty, KINDS.P4INFO_AND_COOKIE).config.p4_device_config == b""
    assert loaded(empty, KINDS.DEVICE_CONFIG_AND_COOKIE).config.p4_device_config == sent.p4_device_config


def test_verify_changes_nothing(empty: Client, source: Source) -> None:
    empty.configure("VERIFY", config(source))
    assert not loaded(empty).HasField("config")


def test_a_program_is_not_loaded_by_a_client_that_is_no_longer_primary(source: Source) -> None:
    answers = iter((None, PermissionDenied("another one is"), None))

    def permit() -> None:
        if answer := next(answers):
            raise answer

    with Switch({}) as switch:
        device = Device(switch)
        with pytest.raises(PermissionDenied):
            device.configure(REQUEST.VERIFY_AND_COMMIT, config(source), permit)
        assert (device.running, next(answers)) == (None, None)


def test_loading_clears_all_entries(client: Client, names: Names, source: Source, switch: Switch) -> None:
    client.write("MODIFY", sending(names, 2))
    client.write("INSERT", names.entry("lpm_table", action=names.action("mark", b"\1"), metadata=b"x"))
    client.configure("VERIFY_AND_COMMIT", config(source))
    assert client.read(names.entry("lpm_table")) == []
    switch.inject(0, [probe(9)])
    assert switch.drain(2) == []


def test_a_saved_program_takes_writes_but_no_packets_until_it_is_committed(
    client: Client, names: Names, source: Source, switch: Switch
) -> None:
    client.write("MODIFY", sending(names, 2))
    client.configure("VERIFY_AND_SAVE", config(source))
    client.write("MODIFY", sending(names, 3))
    switch.inject(0, [probe(9)])
    assert (switch.drain(2), switch.drain(3)) == ([probe(9)], [])
    client.configure("COMMIT")
    switch.inject(0, [probe(9)])
    assert (switch.drain(2), switch.drain(3)) == ([], [probe(9)])


LINE_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize(
    ("action", "fields", "code", "message"),
    [
        ("VERIFY_AND_COMMIT", {"p4_device_config": b""}, "INVALID_ARGUMENT", "the device config is empty"),
        ("VERIFY_AND_COMMIT", {"p4_device_config": b"\xff"}, "INVALID_ARGUMENT", "not P4 source in UTF-8"),
        ("VERIFY", {"p4_device_config": b"control {"}, "INVALID_ARGUMENT", "does not compile: "),
        (
            "VERIFY",
            {"p4_device_config": b'\n #include "/etc/passwd"\n'},
            "INVALID_ARGUMENT",
            "line 2 of the device config is a #include",
        ),
        *(
            (
                "VERIFY",
                {"p4_device_config": text.encode()},
                "INVALID_ARGUMENT",
                "a #include in preprocessed source",
            )
            # What else ends lines, and begins directives, for the preprocessor.
            for text in (
                *(f';{end}#include "/etc/passwd"\n' for end in LINE_ENDS),
                '??=include "/etc/passwd"\n',
            )
        ),
        (
            "VERIFY",
            {"p4info": p4info_pb2.P4Info()},
            "INVALID_ARGUMENT",
            "the P4Info lacks table 'MyIngress.acl_table'",
        ),
        ("VERIFY", {"p4info": None}, "INVALID_ARGUMENT", "no P4Info"),
        ("COMMIT", {}, "INVALID_ARGUMENT", "COMMIT takes no config"),
        ("RECONCILE_AND_COMMIT", {"p4info": None}, "INVALID_ARGUMENT", "no P4Info"),
        ("UNSPECIFIED", {}, "INVALID_ARGUMENT", "is not a pipeline config action"),
        ("COMMIT", None, "NOT_FOUND", "no config is saved"),
        ("VERIFY", None, "INVALID_ARGUMENT", "needs a config"),
    ],
)
def test_a_bad_config_is_refused_and_the_old_one_stays(
    client: Client,
    names: Names,
    source: Source,
    action: str,
    fields: dict[str, Any] | None,
    code: str,
    message: str,
) -> None:
    client.write("MODIFY", sending(names, 2))
    with pytest.raises(grpc.RpcError) as error:
        client.configure(action, None if fields is None else config(source, **fields))
    assert error.value.code().name == code
    assert message in error.value.details()
    assert client.read(names.entry("exact_table", is_default_action=True)) == [sending(names, 2)]


def test_a_p4info_that_does_not_fit_the_program_is_refused(empty: Client, source: Source) -> None:
    wide, scoped = config(source), config(source)
    next(a for a in wide.p4info.actions if a.preamble.alias == "send").params[0].bitwidth = 16
    scoped.p4info.tables[0].action_refs[0].scope = 9
    for sent, message in (
        (wide, r"'MyIngress.send' has \(bit<16> port\) in the P4Info, \(bit<9> port\) in the program"),
        (scoped, "the P4Info has scope 9 for action 0x"),
    ):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, message):
            empty.configure("VERIFY", sent)


def test_ids_may_be_those_of_another_compiler(client: Client, source: Source, switch: Switch) -> None:
    info = p4info_pb2.P4Info()
    info.CopyFrom(source.info)
    renumbered = {}
    for objects in (info.tables, info.actions, info.counters, info.direct_counters):
        for item in objects:
            renumbered[item.preamble.id] = item.preamble.id ^ 0x777
            item.preamble.id ^= 0x777
    for table in info.tables:
        for ref in table.action_refs:
            ref.id = renumbered[ref.id]
        for i, resource in enumerate(table.direct_resource_ids):
            table.direct_resource_ids[i] = renumbered[resource]
    for counter in info.direct_counters:
        counter.direct_table_id = renumbered[counter.direct_table_id]
    client.configure("VERIFY_AND_COMMIT", config(source, p4info=info))
    client.write("MODIFY", sending(Names(info), 2))
    switch.inject(0, [probe(9)])
    assert switch.drain(2) == [probe(9)]
