"""The service as clients see it: requests over gRPC, a real program, real packets.

Encryption and client certificates, with a CA made for the test.

P4Runtime at a Unix socket: only who may reach the file controls the switch.

Whatever a request holds, it is carried out or refused in words; nothing else escapes.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks.p4.p4_fuzz import messages
from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Serving, Tls, entities, private_socket, serve
from softswitch.p4runtime.errors import RequestError
from softswitch.p4runtime.state import Device
from tests import effort
from tests.sockets import make_certificates
from tests.softswitch.p4runtime.clients import Client, Names, Source, errors, exact, lpm, refused, ternary


def group(id_: int, *replicas: tuple[int, int]) -> Any:
    entry = p4.MulticastGroupEntry(
        multicast_group_id=id_, replicas=[p4.Replica(egress_port=p, instance=i) for p, i in replicas]
    )
    return p4.Entity(
        packet_replication_engine_entry=p4.PacketReplicationEngineEntry(multicast_group_entry=entry)
    )


def session(id_: int, *replicas: tuple[int, int], length: int = 0) -> Any:
    entry = p4.CloneSessionEntry(
        session_id=id_,
        packet_length_bytes=length,
        replicas=[p4.Replica(port=bytes([p]), instance=i) for p, i in replicas],
    )
    return p4.Entity(
        packet_replication_engine_entry=p4.PacketReplicationEngineEntry(clone_session_entry=entry)
    )


def direct(entity: Any, **data: int) -> Any:
    entry = p4.DirectCounterEntry(table_entry=entity.table_entry)
    if data:
        entry.data.CopyFrom(p4.CounterData(**data))
    return p4.Entity(direct_counter_entry=entry)


def probe(exact_key: int = 0, *, lpm_key: int = 0, ternary_key: int = 0, mark: int = 0) -> bytes:
    return struct.pack("!HIIHBB", exact_key, lpm_key, ternary_key, 0, 0, mark)


def refusal(client: Client, kind: str, entity: Any) -> tuple[str, str]:
    """The one error of a batch of one."""
    with refused(grpc.StatusCode.UNKNOWN) as error:
        client.write(kind, entity)
    (found,) = errors(error.value)
    return found


# ---------------------------------------------------------------------- tables


def test_an_entry_reads_back_as_it_was_written_and_forwards(
    client: Client, names: Names, switch: Switch
) -> None:
    entry = names.entry("exact_table", exact(7), action=names.action("send", b"\2"), metadata=b"mine")
    client.write("INSERT", entry)
    assert client.read(names.entry("exact_table")) == [entry]
    switch.inject(0, [probe(7), probe(8)])
    assert switch.drain(2) == [probe(7)]
    client.write("MODIFY", names.entry("exact_table", exact(7), action=names.action("send", b"\3")))
    switch.inject(0, [probe(7)])
    assert switch.drain(3) == [probe(7)]
    client.write("DELETE", names.entry("exact_table", exact(7)))
    switch.inject(0, [probe(7)])
    assert switch.drain(3) == []
    assert client.read(names.entry("exact_table")) == []


def test_the_longest_prefix_and_the_highest_priority_win(
    client: Client, names: Names, switch: Switch
) -> None:
    client.write(
        "INSERT",
        names.entry("exact_table", exact(1), action=names.action("send", b"\1")),
        names.entry("lpm_table", lpm(b"\x0a\0\0\0", 8), action=names.action("mark", b"\x08")),
        names.entry("lpm_table", lpm(b"\x0a\1\0\0", 16), action=names.action("mark", b"\x10")),
        names.entry("acl_table", ternary(b"\1", b"\1"), action=names.action("mark", b"\xa1"), priority=1),
        names.entry("acl_table", ternary(b"\2", b"\2"), action=names.action("mark", b"\xa2"), priority=2),
    )
    frames = [probe(1, lpm_key=0x0A020000), probe(1, lpm_key=0x0A010000), probe(1, ternary_key=3)]
    switch.inject(0, frames)
    assert [frame[-1] for frame in switch.drain(1)] == [0x08, 0x10, 0xA2]


def test_default_entries_are_modified_and_reset(client: Client, names: Names, switch: Switch) -> None:
    original = client.read(names.entry("exact_table", is_default_action=True))
    changed = names.entry("exact_table", action=names.action("send", b"\3"), is_default_action=True)
    client.write("MODIFY", changed)
    assert client.read(names.entry("exact_table", is_default_action=True)) == [changed]
    switch.inject(0, [probe(9)])
    assert switch.drain(3) == [probe(9)]
    client.write("MODIFY", names.entry("exact_table", is_default_action=True))
    assert client.read(names.entry("exact_table", is_default_action=True)) == original
    default = names.entry("keyless_table", action=names.action("mark", b"\5"), is_default_action=True)
    client.write("MODIFY", default)
    assert client.read(names.entry("keyless_table", is_default_action=True)) == [default]


def test_wildcard_reads_and_their_filters(client: Client, names: Names) -> None:
    send = names.action("send", b"\1")
    entries = [names.entry("exact_table", exact(i), action=send) for i in (1, 2)]
    entries.append(names.entry("exact_table", exact(3), action=names.action("drop")))
    routes = [names.entry("lpm_table", lpm(b"\x0a\0\0\0", 8), action=names.action("mark", b"\1"))]
    client.write("INSERT", *entries, *routes)
    everything = client.read(p4.Entity(table_entry=p4.TableEntry()))
    written = [e for e in everything if not e.table_entry.is_const]
    assert sorted(written, key=str) == sorted(entries + routes, key=str)
    assert len([e for e in everything if e.table_entry.is_const]) == 2
    assert client.read(names.entry("exact_table", exact(2))) == [entries[1]]
    assert client.read(names.entry("exact_table", exact(4))) == []
    by_action = names.entry(
        "exact_table", action=p4.TableAction(action=p4.Action(action_id=names.actions["drop"].preamble.id))
    )
    assert client.read(by_action) == [entries[2]]
    mark = names.action("mark", b"\1")
    entries = [
        names.entry("acl_table", ternary(b"\1", b"\1"), action=mark, priority=1, metadata=b"a"),
        names.entry("acl_table", ternary(b"\1", b"\1"), action=mark, priority=2, metadata=b"b"),
    ]
    client.write("INSERT", *entries)
    assert client.read(names.entry("acl_table", priority=2)) == [entries[1]]
    assert client.read(names.entry("acl_table", metadata=b"a")) == [entries[0]]


@pytest.mark.parametrize(
    ("kind", "build", "code", "message"),
    [
        ("INSERT", lambda n: n.entry("exact_table", exact(1)), "INVALID_ARGUMENT", "has no action"),
        (
            "MODIFY",
            lambda n: n.entry("exact_table", exact(1), action=n.action("drop")),
            "NOT_FOUND",
            "to modify",
        ),
        ("DELETE", lambda n: n.entry("exact_table", exact(1)), "NOT_FOUND", "to delete"),
        (
            "INSERT",
            lambda n: n.entry("const_table", exact(5), action=n.action("mark", b"\1")),
            "PERMISSION_DENIED",
            "constant in the program",
        ),
        (
            "DELETE",
            lambda n: n.entry("const_table", exact(1)),
            "PERMISSION_DENIED",
            "constant in the program",
        ),
        (
            "MODIFY",
            lambda n: n.entry("acl_table", action=n.action("mark", b"\1"), is_default_action=True),
            "PERMISSION_DENIED",
            "default action of 'MyIngress.acl_table' is constant",
        ),
        (
            "INSERT",
            lambda n: n.entry("exact_table", action=n.action("drop"), is_default_action=True),
            "INVALID_ARGUMENT",
            "can only be modified",
        ),
        (
            "INSERT",
            lambda n: n.entry("acl_table", action=n.action("NoAction"), priority=1),
            "PERMISSION_DENIED",
            "for the default of",
        ),
        (
            "INSERT",
            lambda n: n.entry("exact_table", exact(1), action=n.action("drop"), is_const=True),
            "INVALID_ARGUMENT",
            "is_const",
        ),
        (
            "INSERT",
            lambda n: n.entry("exact_table", exact(1), action=n.action("drop"), idle_timeout_ns=1),
            "INVALID_ARGUMENT",
            "cannot time out",
        ),
        (
            "INSERT",
            lambda n: n.entry("lpm_table", action=n.action("mark", b"\1"), counter_data=p4.CounterData()),
            "INVALID_ARGUMENT",
            "no direct counter",
        ),
        ("UNSPECIFIED", lambda n: n.entry("exact_table", exact(1)), "INVALID_ARGUMENT", "has no type"),
        ("INSERT", lambda n: p4.Entity(), "INVALID_ARGUMENT", "names no entity"),
        ("INSERT", lambda n: p4.Entity(register_entry=p4.RegisterEntry()), "INVALID_ARGUMENT", "no register"),
        ("INSERT", lambda n: p4.Entity(meter_entry=p4.MeterEntry()), "INVALID_ARGUMENT", "no meter has"),
        ("INSERT", lambda n: p4.Entity(extern_entry=p4.ExternEntry()), "UNIMPLEMENTED", "externs other than"),
        (
            "INSERT",
            lambda n: n.entry("keyless_table", action=n.action("mark", b"\5")),
            "INVALID_ARGUMENT",
            "has no key",
        ),
        ("MODIFY", lambda n: n.cell("seen", 16, packet_count=1), "OUT_OF_RANGE", ""),
        ("MODIFY", lambda n: n.cell("seen", -1, packet_count=1), "INVALID_ARGUMENT", ""),
        ("INSERT", lambda n: n.cell("seen", 1, packet_count=1), "INVALID_ARGUMENT", ""),
        *(
            (kind, lambda n: direct(n.entry("exact_table", exact(7)), packet_count=1), code, "")
            for kind, code in (("MODIFY", "NOT_FOUND"), ("INSERT", "INVALID_ARGUMENT"))
        ),
        ("MODIFY", lambda n: direct(n.entry("lpm_table"), packet_count=1), "INVALID_ARGUMENT", ""),
        *(
            (kind, lambda n, entity=entity: entity, code, "")
            for kind, entity, code in (
                ("INSERT", group(0), "INVALID_ARGUMENT"),
                ("INSERT", group(1 << 16), "INVALID_ARGUMENT"),
                ("INSERT", group(5, (1, 1), (1, 1)), "INVALID_ARGUMENT"),
                ("INSERT", group(5, (511, 1)), "INVALID_ARGUMENT"),
                ("INSERT", group(5, (1, 1 << 16)), "INVALID_ARGUMENT"),
                ("MODIFY", group(5), "NOT_FOUND"),
                ("DELETE", group(5), "NOT_FOUND"),
                ("INSERT", session(0), "INVALID_ARGUMENT"),
                ("INSERT", session(1, length=-1), "INVALID_ARGUMENT"),
                ("DELETE", session(1), "NOT_FOUND"),
            )
        ),
    ],
)
def test_a_bad_update_is_refused(
    client: Client, names: Names, kind: str, build: Callable[[Names], Any], code: str, message: str
) -> None:
    found_code, found_message = refusal(client, kind, build(names))
    assert found_code == code
    assert message in found_message


def test_a_second_entry_and_one_too_many_are_refused(client: Client, names: Names) -> None:
    drop = names.action("drop")
    client.write("INSERT", *(names.entry("exact_table", exact(i), action=drop) for i in range(1, 5)))
    assert refusal(client, "INSERT", names.entry("exact_table", exact(1), action=drop))[0] == "ALREADY_EXISTS"
    code, message = refusal(client, "INSERT", names.entry("exact_table", exact(5), action=drop))
    assert code == "RESOURCE_EXHAUSTED"
    assert "room for 4 entries" in message


def test_a_batch_goes_on_after_an_error_and_reports_each_update(client: Client, names: Names) -> None:
    drop = names.action("drop")
    with refused(grpc.StatusCode.UNKNOWN) as error:
        client.write(
            "INSERT",
            names.entry("exact_table", exact(1), action=drop),
            names.entry("exact_table", exact(1), action=drop),
            names.entry("exact_table", exact(2), action=drop),
        )
    assert [code for code, _ in errors(error.value)] == ["OK", "ALREADY_EXISTS", "OK"]
    assert len(client.read(names.entry("exact_table"))) == 2


def test_errors_of_a_large_batch_fit_into_metadata(client: Client, names: Names) -> None:
    with pytest.raises(grpc.RpcError) as error:
        client.write("DELETE", *(names.entry("exact_table", exact(1)) for _ in range(80)))
    assert [code for code, _ in errors(error.value)] == ["NOT_FOUND"] * 80
    for count in (100, 150):
        with pytest.raises(grpc.RpcError) as error:
            client.write("MODIFY", *(names.cell("seen", 15 + (i == 7)) for i in range(count)))
        assert "beyond the last index" in errors(error.value)[7][1]


# ---------------------------------------------------------------------- counters


def test_indirect_counters_count_and_are_set(client: Client, names: Names, switch: Switch) -> None:
    switch.inject(0, [probe(5), probe(5), probe(6)])
    length = len(probe())
    assert client.read(names.cell("seen", 5)) == [
        names.cell("seen", 5, packet_count=2, byte_count=2 * length)
    ]
    cells = client.read(names.cell("seen", None))
    assert [c.counter_entry.data.packet_count for c in cells] == [0, 0, 0, 0, 0, 2, 1] + 9 * [0]
    client.write("MODIFY", names.cell("seen", 5, packet_count=9))
    assert client.read(names.cell("seen", 5)) == [names.cell("seen", 5, packet_count=9, byte_count=0)]
    client.write("MODIFY", names.cell("seen", None, packet_count=1))
    cells = client.read(p4.Entity(counter_entry=p4.CounterEntry()))
    assert [c.counter_entry.data.packet_count for c in cells] == 16 * [1]


def test_direct_counters_count_with_their_entry(client: Client, names: Names, switch: Switch) -> None:
    entry = names.entry("exact_table", exact(7), action=names.action("send", b"\2"))
    client.write("INSERT", entry)
    switch.inject(0, [probe(7), probe(7)])
    key = names.entry("exact_table", exact(7))
    counted = {"packet_count": 2, "byte_count": 2 * len(probe())}
    assert client.read(direct(key)) == [direct(key, **counted)]
    assert client.read(
        p4.Entity(direct_counter_entry=p4.DirectCounterEntry(table_entry=p4.TableEntry()))
    ) == [direct(key, **counted)]
    wanted = names.entry("exact_table", counter_data=p4.CounterData())
    (found,) = client.read(wanted)
    assert found.table_entry.counter_data == p4.CounterData(**counted)
    client.write("MODIFY", direct(key, packet_count=5, byte_count=6))
    assert client.read(direct(key)) == [direct(key, packet_count=5, byte_count=6)]
    client.write("MODIFY", names.entry("exact_table", exact(7), counter_data=p4.CounterData()))
    assert client.read(direct(key)) == [direct(key, packet_count=0, byte_count=0)]


# ---------------------------------------------------------------------- replication


def test_a_multicast_group_copies_packets_to_its_ports(client: Client, names: Names, switch: Switch) -> None:
    client.write("INSERT", names.entry("exact_table", exact(7), action=names.action("group", b"\5")))
    client.write("INSERT", group(5, (1, 1), (2, 2)))
    switch.inject(0, [probe(7)])
    assert (switch.drain(1), switch.drain(2), switch.drain(3)) == ([probe(7)], [probe(7)], [])
    client.write("MODIFY", group(5, (3, 1)))
    switch.inject(0, [probe(7)])
    assert (switch.drain(1), switch.drain(2), switch.drain(3)) == ([], [], [probe(7)])
    client.write("DELETE", group(5))
    switch.inject(0, [probe(7)])
    assert switch.drain(3) == []


def test_replication_entries_read_back_as_they_were_written(client: Client) -> None:
    groups = [group(5, (1, 1), (2, 2)), group(6)]
    sessions = [session(9, (1, 0), length=64)]
    client.write("INSERT", *groups, *sessions)
    assert client.read(group(0)) == groups
    assert client.read(session(0)) == sessions
    assert client.read(group(6)) == [groups[1]]
    assert refusal(client, "INSERT", group(5))[0] == "ALREADY_EXISTS"


# ---------------------------------------------------------------------- what programs here do not have


def test_wildcard_reads_of_what_no_program_has_find_nothing(client: Client) -> None:
    kinds = [
        p4.Entity(extern_entry=p4.ExternEntry()),
        p4.Entity(action_profile_member=p4.ActionProfileMember()),
        p4.Entity(action_profile_group=p4.ActionProfileGroup()),
        p4.Entity(meter_entry=p4.MeterEntry()),
        p4.Entity(direct_meter_entry=p4.DirectMeterEntry(table_entry=p4.TableEntry())),
        p4.Entity(value_set_entry=p4.ValueSetEntry()),
        p4.Entity(digest_entry=p4.DigestEntry()),
    ]
    assert client.read(*kinds) == []


@pytest.mark.parametrize(
    ("build", "codes"),
    [
        (
            lambda n: [
                p4.Entity(extern_entry=p4.ExternEntry(extern_type_id=1)),
                p4.Entity(meter_entry=p4.MeterEntry(meter_id=1)),
                p4.Entity(),
            ],
            ["UNIMPLEMENTED", "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
        ),
        (lambda n: [n.cell("seen", 0), n.cell("seen", 99)], ["OK", "OUT_OF_RANGE"]),
        (lambda n: [direct(n.entry("exact_table", exact(7)))], ["NOT_FOUND"]),
    ],
    ids=["kinds", "a cell beyond the end", "a counter of no entry"],
)
def test_reads_of_what_is_not_there_are_refused(
    client: Client, names: Names, build: Callable[[Names], list[Any]], codes: list[str]
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        client.read(*build(names))
    assert [code for code, _ in errors(error.value)] == codes


pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA (ca.pem) and two certificates of it: server.pem for localhost, client.pem."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


def version(address: str, credentials: Any = None) -> str:
    with (
        grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
    ) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        return str(stub.Capabilities(p4.CapabilitiesRequest(), timeout=120).p4runtime_api_version)


@pytest.mark.parametrize("asks", [False, True], ids=["server only", "client, too"])
def test_servers_show_a_certificate_and_clients_if_a_ca_for_them_is_given(
    certificates: Path, asks: bool
) -> None:
    ca = certificates / "ca.pem"
    tls = Tls(certificates / "server.pem", certificates / "server.key", client_ca=ca if asks else None)
    with (
        Switch({}) as switch,
        contextlib.closing(serve(switch, serving=Serving(address="localhost:0", tls=tls))) as service,
    ):
        key, chain = ((certificates / f"client.{kind}").read_bytes() for kind in ("key", "pem"))
        with refused(grpc.StatusCode.UNAVAILABLE) if asks else contextlib.nullcontext():
            assert version(service.address, grpc.ssl_channel_credentials(ca.read_bytes())) == "1.4.1"
        assert version(service.address, grpc.ssl_channel_credentials(ca.read_bytes(), key, chain)) == "1.4.1"


CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
# The child itself: to become another user before exec takes a fork, in which gRPC's threads may crash.
AS_NOBODY = f"import os; {CONNECT.partition('; ')[0]}; os.setgroups([]); os.setgid(65534); os.setuid(65534)"


@pytest.mark.parametrize("length", [1, 100])
def test_a_private_socket_serves_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    (tmp_path / ("x" * length)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * length)))
    with (
        Switch({}) as switch,
        private_socket() as address,
        contextlib.closing(serve(switch, serving=Serving(address=address))) as service,
    ):
        assert (service.address, service.port) == (address, None)
        folder = Path(address.removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert version(address) == "1.4.1"
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect() -> None:
    with (
        Switch({}) as switch,
        private_socket() as address,
        contextlib.closing(serve(switch, serving=Serving(address=address))),
    ):
        path = address.removeprefix("unix:")
        as_us = subprocess.run([sys.executable, "-c", CONNECT, path], check=False)
        as_nobody = subprocess.run(
            [sys.executable, "-c", f"{AS_NOBODY}; {CONNECT}", path],
            check=False,
            capture_output=True,
            text=True,
        )
    assert as_us.returncode == 0
    assert as_nobody.returncode == 1
    assert "PermissionError" in as_nobody.stderr


def test_a_socket_in_use_is_not_taken_away() -> None:
    with (
        Switch({}) as switch,
        Switch({}) as other,
        private_socket() as address,
        contextlib.closing(serve(switch, serving=Serving(address=address))),
    ):
        with pytest.raises(OSError, match=f"cannot listen on {address}: another process listens there"):
            serve(other, serving=Serving(address=address))
        assert version(address) == "1.4.1"


def test_a_file_that_is_no_socket_is_left_alone(write_file: Callable[[str, str], Path]) -> None:
    file = write_file("notes", "precious")
    with Switch({}) as switch:
        with pytest.raises(OSError, match="the file exists and is not a socket"):
            serve(switch, serving=Serving(address=f"unix:{file}"))
        with pytest.raises(OSError, match="has 1 to 107 bytes"):
            serve(switch, serving=Serving(address=f"unix:/tmp/{'x' * 200}"))
    assert file.read_text() == "precious"


def test_a_folder_that_is_not_there_is_told_by_us_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """gRPC would complain on standard error first, in its own words."""
    with Switch({}) as switch, pytest.raises(OSError, match="there is no folder"):
        serve(switch, serving=Serving(address=f"unix:{tmp_path}/missing/s1"))
    assert capfd.readouterr() == ("", "")


def test_any_request_is_carried_out_or_refused(source: Source) -> None:
    drawing = messages.Drawing(random.Random(1), source.info, source.text)
    with Switch({}) as switch:
        device = Device(switch)
        device.preload(source.text)
        for _ in range(effort.cases(20_000)):
            for update in drawing.message(p4.WriteRequest).updates:
                with contextlib.suppress(RequestError):
                    entities.write(device, update)
                with contextlib.suppress(RequestError):
                    entities.read(device, update.entity)
