"""BF Runtime against a running switch, by a client of ours: what is written is what packets meet."""

from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest

from benchmarks.p4.switchml.client import Client, Table
from p4src.messages import bfruntime, status_pb2
from softswitch.bfrt import BfrtService
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Loading, serve
from tests.softswitch.tofino.programs import frame, preprocessed

PORTS = (0, 1, 4)
PROGRAM = preprocessed(
    declarations="struct pair_t { bit<32> first; int<8> second; }",
    metadata="bit<8> number; bit<16> group; bit<10> session;",
    ingress_locals="""
        DirectCounter<bit<32>>(CounterType_t.PACKETS_AND_BYTES) seen;
        action forward(PortId_t port, bit<8> number) {
            tm.ucast_egress_port = port; meta.number = number; seen.count();
        }
        action flood(bit<16> group) { tm.mcast_grp_a = group; seen.count(); }
        action drop() { deparser.drop_ctl = 1; seen.count(); }
        table exactly {
            key = { hdr.ethernet.dst: exact; }
            actions = { forward; flood; drop; }
            default_action = drop();
            counters = seen;
            size = 4;
        }
        action mark(bit<16> kind) { hdr.ethernet.kind = kind; }
        table loosely {
            key = { hdr.ethernet.src: ternary; hdr.ethernet.kind: range; }
            actions = { mark; NoAction; }
            const default_action = NoAction();
        }
        table by_prefix {
            key = { hdr.ethernet.src: lpm; }
            actions = { mark; @defaultonly NoAction; }
            default_action = NoAction();
        }
        Register<pair_t, bit<8>>(4, {5, -1}) pairs;
        RegisterAction<pair_t, bit<8>, bit<32>>(pairs) add = {
            void apply(inout pair_t value) { value.first = value.first + 1; value.second = value.second - 1; }
        };
        Counter<bit<32>, bit<8>>(8, CounterType_t.PACKETS) packets;
    """,
    ingress="by_prefix.apply(); loosely.apply(); exactly.apply(); add.execute(8w2); packets.count(8w3);"
    " if (hdr.ethernet.kind == 0x99) { tm.level1_exclusion_id = 7; tm.level2_exclusion_id = 3; tm.rid = 30; }"
    " if (hdr.ethernet.kind == 0x77) { deparser.mirror_type = 1; meta.session = 11; }",
    ingress_deparser_locals="Mirror() mirror;",
    ingress_deparser="if (deparser.mirror_type == 1) { mirror.emit(meta.session); } packet.emit(hdr);",
)
DESTINATION = "hdr.ethernet.dst"


@dataclass(frozen=True)
class Bench:
    switch: Switch
    client: Client
    address: str

    def table(self, name: str) -> Table:
        return self.client.tables[name]

    def sent(self, packet: bytes, port: int = 0) -> dict[int, list[bytes]]:
        """Return what leaves for a frame, by port."""
        self.switch.inject(port, [packet], 1)
        found = {port: self.switch.drain(port) for port in PORTS}
        return {port: frames for port, frames in found.items() if frames}


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Switch({port: MemoryPort() for port in PORTS}) as switch:
        service = serve(switch, source=PROGRAM, loading=Loading(backend="interpreter"))
        drivers = BfrtService(service.device, name="Tofino")
        client = Client(drivers.address, "tofino")
        try:
            yield Bench(switch, client, drivers.address)
        finally:
            client.close()
            drivers.close()
            service.close()


def refusals(error: grpc.RpcError) -> list[tuple[int, str]]:
    """Return the errors of a batch: codes and messages, as published clients look for them."""
    assert error.code() == grpc.StatusCode.UNKNOWN
    (details,) = (value for name, value in error.trailing_metadata() if name == "grpc-status-details-bin")
    found = []
    for packed in status_pb2.Status.FromString(details).details:
        one = bfruntime.Error()
        assert packed.Unpack(one)
        found.append((one.canonical_code, one.message))
    return found


def test_an_entry_is_what_packets_meet_and_counts_them(bench: Bench) -> None:
    exactly = bench.table("pipe.Ingress.exactly")
    exactly.add({DESTINATION: 1}, {"port": 4, "number": 0xAB}, "Ingress.forward")
    exactly.add({DESTINATION: 0xFFFFFFFFFFFF}, {"port": 1, "number": 0}, "Ingress.forward")
    assert bench.sent(frame(dst=1)) == {4: [frame(dst=1)]}
    assert bench.sent(frame(dst=2)) == {}
    counts = {"$COUNTER_SPEC_BYTES": len(frame()), "$COUNTER_SPEC_PKTS": 1}
    ((key, data, action),) = exactly.entries({DESTINATION: 1})
    assert (key, action) == ({DESTINATION: 1}, "Ingress.forward")
    assert data == {"port": 4, "number": 0xAB, **counts}
    assert exactly.usage() == len(exactly.entries()) == 2
    exactly.operate("SyncCounters")
    exactly.modify({DESTINATION: 1}, {"$COUNTER_SPEC_BYTES": 0, "$COUNTER_SPEC_PKTS": 0}, "Ingress.forward")
    exactly.modify({DESTINATION: 1}, {"port": 1}, "Ingress.forward")  # what is not given stays
    ((_, data, _),) = exactly.entries({DESTINATION: 1})
    assert data == {"port": 1, "number": 0xAB, "$COUNTER_SPEC_BYTES": 0, "$COUNTER_SPEC_PKTS": 0}
    exactly.delete({DESTINATION: 1})
    assert bench.sent(frame(dst=1)) == {}
    exactly.delete()
    assert exactly.entries() == []


def test_parameters_that_are_left_out_are_zero_and_defaults_are_set_and_reset(bench: Bench) -> None:
    exactly = bench.table("pipe.Ingress.exactly")
    exactly.set_default({"port": 4}, "Ingress.forward")
    ((_, data, action),) = exactly.entries(default=True)
    assert (action, data["port"], data["number"]) == ("Ingress.forward", 4, 0)
    assert bench.sent(frame(dst=9)) == {4: [frame(dst=9)]}
    for table in ("pipe.Ingress.exactly", "pipe.Ingress.loosely"):  # of the second it is constant
        entry = bench.table(table).entry(None, {}, "")
        entry.is_default_entry = True
        bench.client.write((bfruntime.DELETE, bfruntime.Entity(table_entry=entry)))
    assert bench.sent(frame(dst=9)) == {}


def test_the_smallest_priority_wins_and_what_matches_anything_reads_back(bench: Bench) -> None:
    bench.table("pipe.Ingress.exactly").set_default({"port": 4}, "Ingress.forward")
    loosely = bench.table("pipe.Ingress.loosely")
    source, kind, priority = "hdr.ethernet.src", "hdr.ethernet.kind", "$MATCH_PRIORITY"
    loosely.add({priority: 5, source: None, kind: (0x1000, 0x1FFF)}, {"kind": 5}, "Ingress.mark")
    loosely.add({priority: 3, source: (0x22FF, 0xFF00), kind: None}, {"kind": 3}, "Ingress.mark")
    for src, before, after in ((0x22AB, 0x1234, 3), (0x33AB, 0x1234, 5), (0x33AB, 0x2000, 0x2000)):
        assert bench.sent(frame(src=src, kind=before)) == {4: [frame(src=src, kind=after)]}
    assert sorted((key[priority], key[source], key[kind]) for key, _, _ in loosely.entries()) == [
        (3, (0x2200, 0xFF00), (0, 0xFFFF)),
        (5, (0, 0), (0x1000, 0x1FFF)),
    ]
    prefixes = bench.table("pipe.Ingress.by_prefix")
    prefixes.add({source: (0x440000000000, 8)}, {"kind": 0x1800}, "Ingress.mark")
    assert bench.sent(frame(src=0x44AAAAAAAAAA, kind=1)) == {4: [frame(src=0x44AAAAAAAAAA, kind=5)]}
    ((key, _, _),) = prefixes.entries()
    assert key == {source: (0x440000000000, 8)}


def test_registers_and_counters_are_cells(bench: Bench) -> None:
    pairs, packets = bench.table("pipe.Ingress.pairs"), bench.table("pipe.Ingress.packets")
    first, second = "Ingress.pairs.first", "Ingress.pairs.second"
    bench.sent(frame())
    assert pairs.entries({"$REGISTER_INDEX": 2}) == [({"$REGISTER_INDEX": 2}, {first: 6, second: 0xFE}, "")]
    pairs.modify({"$REGISTER_INDEX": 2}, {second: 0x80})
    assert pairs.entries({"$REGISTER_INDEX": 2})[0][1] == {first: 6, second: 0x80}
    pairs.delete()
    assert [data for _, data, _ in pairs.entries()] == [{first: 5, second: 0xFF}] * 4
    packets.operate("Sync")
    assert packets.entries({"$COUNTER_INDEX": 3})[0][1] == {"$COUNTER_SPEC_PKTS": 1}
    packets.delete({"$COUNTER_INDEX": 3})
    assert packets.entries({"$COUNTER_INDEX": 3})[0][1] == {"$COUNTER_SPEC_PKTS": 0}
    with pytest.raises(grpc.RpcError) as caught:
        pairs.entries({"$REGISTER_INDEX": 4})
    assert refusals(caught.value) == [(11, "'pipe.Ingress.pairs' has 4 cells; there is no cell 4")]


def test_multicast_nodes_and_exclusions(bench: Bench) -> None:
    exactly, nodes, groups = (
        bench.table(name) for name in ("pipe.Ingress.exactly", "$pre.node", "$pre.mgid")
    )
    ids, valid, xids = "$MULTICAST_NODE_ID", "$MULTICAST_NODE_L1_XID_VALID", "$MULTICAST_NODE_L1_XID"
    for node, rid, ports in ((1, 30, [0]), (2, 31, [1]), (3, 30, [4])):
        nodes.add({ids: node}, {"$MULTICAST_RID": rid, "$DEV_PORT": ports})
    for group in (0, 5):
        exactly.add({DESTINATION: group}, {"group": group}, "Ingress.flood")
        groups.add({"$MGID": group}, {ids: [1, 2], valid: [False, True], xids: [0, 7]})
        assert set(bench.sent(frame(dst=group))) == {0, 1}
    groups.update(bfruntime.MODIFY_INC, {"$MGID": 5}, {ids: [3], valid: [False], xids: [0]}, "")
    assert set(bench.sent(frame(dst=5))) == {0, 1, 4}
    assert set(bench.sent(frame(dst=5, kind=0x99))) == {0, 4}  # node 2 has exclusion id 7
    bench.table("$pre.prune").add({"$MULTICAST_L2_XID": 3}, {"$DEV_PORT": [4]})
    assert set(bench.sent(frame(dst=5, kind=0x99))) == {0}  # and id 3 stands for port 4
    groups.update(bfruntime.MODIFY_INC, {"$MGID": 5}, {ids: [1]}, "", mod_del=True)
    assert set(bench.sent(frame(dst=5))) == {1, 4}
    nodes.modify({ids: 2}, {"$DEV_PORT": [0, 1]})
    assert set(bench.sent(frame(dst=5))) == {0, 1, 4}
    with pytest.raises(grpc.RpcError, match="node 3 is in multicast group 5: remove it from the group first"):
        nodes.delete({ids: 3})
    with pytest.raises(grpc.RpcError, match="multicast group 5: first add the missing node 9"):
        groups.modify({"$MGID": 5}, {ids: [9], valid: [False], xids: [0]})
    groups.delete()
    assert bench.sent(frame(dst=5)) == bench.sent(frame(dst=0)) == {}
    nodes.delete()
    assert nodes.usage() == 0


def test_mirror_sessions(bench: Bench) -> None:
    bench.table("pipe.Ingress.exactly").set_default({"port": 4}, "Ingress.forward")
    session = {"$session_enable": True, "$direction": "INGRESS", "$ucast_egress_port_valid": True}
    mirrors = bench.table("$mirror.cfg")
    mirrors.add({"$sid": 11}, {**session, "$ucast_egress_port": 1, "$max_pkt_len": 16}, "$normal")
    packet = frame(kind=0x77)
    assert bench.sent(packet) == {1: [packet[:16]], 4: [packet]}
    mirrors.modify({"$sid": 11}, {"$session_enable": False}, "$normal")
    assert bench.sent(packet) == {4: [packet]}


def test_ports_are_those_of_the_switch(bench: Bench) -> None:
    handles, ports, statistics = (bench.table(name) for name in ("$PORT_HDL_INFO", "$PORT", "$PORT_STAT"))
    assert [data["$DEV_PORT"] for _, data, _ in handles.entries({"$CONN_ID": 2, "$CHNL_ID": 0})] == [4]
    with pytest.raises(grpc.RpcError, match="there is no port 9/0; there are 1/0, 1/1, 2/0"):
        handles.entries({"$CONN_ID": 9, "$CHNL_ID": 0})
    ports.add({"$DEV_PORT": 4}, {"$SPEED": "BF_SPEED_100G", "$FEC": "BF_FEC_TYP_NONE", "$PORT_ENABLE": True})
    ((_, data, _),) = ports.entries({"$DEV_PORT": 4})
    assert (data["$SPEED"], data["$PORT_UP"], data["$CONN_ID"]) == ("BF_SPEED_100G", True, 2)
    with pytest.raises(grpc.RpcError, match="the switch has no port 7; it has 0, 1, 4"):
        ports.add({"$DEV_PORT": 7}, {"$SPEED": "BF_SPEED_100G"})
    bench.sent(frame())
    assert statistics.entries({"$DEV_PORT": 0})[0][1]["$FramesReceivedOK"] == 1
    statistics.modify({"$DEV_PORT": 0}, {"$FramesReceivedOK": 0})
    assert statistics.entries({"$DEV_PORT": 0})[0][1]["$FramesReceivedOK"] == 0


def test_each_refusal_of_a_batch_has_its_place(bench: Bench) -> None:
    exactly = bench.table("pipe.Ingress.exactly")
    entries = [
        exactly.entry({DESTINATION: number}, {"port": 4}, "Ingress.forward") for number in (1, 1, 2, 3, 4, 5)
    ]
    entries[2].data.action_id = 99
    with pytest.raises(grpc.RpcError) as caught:
        bench.client.write(*((bfruntime.INSERT, bfruntime.Entity(table_entry=entry)) for entry in entries))
    assert [code for code, _ in refusals(caught.value)] == [0, 6, 3, 0, 0, 0]
    assert exactly.usage() == 4
    with pytest.raises(grpc.RpcError, match="is full: it has room for 4 entries"):
        exactly.add({DESTINATION: 6}, {"port": 4}, "Ingress.forward")
    with pytest.raises(grpc.RpcError, match="holds no entry with this match to modify"):
        exactly.modify({DESTINATION: 9}, {"port": 1}, "Ingress.forward")
    with pytest.raises(grpc.RpcError, match="'port'; it has 9 bits"):
        exactly.modify({DESTINATION: 1}, {"port": 512}, "Ingress.forward")


@pytest.mark.parametrize(
    ("name", "key"),
    [("$pre.ecmp", "$MULTICAST_ECMP_ID"), ("pipe.IngressParser.$PORT_METADATA", "ingress_port")],
)
def test_what_the_switch_does_not_have_stays_empty(bench: Bench, name: str, key: str) -> None:
    table = bench.table(name)
    table.delete()
    assert table.entries() == []
    with pytest.raises(grpc.RpcError, match="it stays empty"):
        table.add({key: 1}, {})


def test_a_client_binds_to_the_program_that_runs(bench: Bench) -> None:
    with pytest.raises(grpc.RpcError, match="does not run program 'other' but 'Tofino' only"):
        Client(bench.address, "other")
    with pytest.raises(grpc.RpcError, match="load the P4 source by --program or P4Runtime"):
        bench.client.configure(bfruntime.SetConfigRequest(action=3))
    entry = bench.table("$pre.node").entry({"$MULTICAST_NODE_ID": 1}, {}, "")
    update = (bfruntime.INSERT, bfruntime.Entity(table_entry=entry))
    with pytest.raises(grpc.RpcError, match="CONTINUE_ON_ERROR only"):
        bench.client.write(update, update, atomicity=bfruntime.ROLLBACK_ON_ERROR)


def test_a_subscription_is_answered_and_other_bytes_end_the_stream(bench: Bench) -> None:
    with grpc.insecure_channel(bench.address) as channel:
        call = channel.stream_stream(
            f"/{bfruntime.SERVICE}/StreamChannel", bytes, bfruntime.StreamMessageResponse.FromString
        )
        request = bfruntime.StreamMessageRequest(client_id=1)
        request.subscribe.device_id = 3
        answers = call(iter([request.SerializeToString()]), timeout=60)
        assert next(answers).subscribe.device_id == 3
        assert list(answers) == []
        with pytest.raises(grpc.RpcError, match="this is no StreamMessageRequest"):
            list(call(iter([b"\xff\xff"]), timeout=60))
