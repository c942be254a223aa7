// Meters, digests, idle timeouts, counters of defaults and registers of structs.
#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8>  key;
    bit<8>  colour;
    bit<16> value;
}

struct cell_t {
    bit<16>  last;
    int<8>   difference;
    bool     seen;
}
struct learnt_t {
    bit<9> port;
    probe_t probe;
    error  problem;
}
struct headers_t { probe_t probe; }
struct metadata_t { cell_t cell; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    meter(4, MeterType.bytes) by_bytes;
    direct_meter<bit<8>>(MeterType.packets) by_entry;
    direct_counter(CounterType.packets_and_bytes) hits;
    register<cell_t>(4) cells;
    register<bit<8>>(4) plain;

    action helper(in bit<16> value) { hdr.probe.value = value; }
    action tell() { by_entry.read(hdr.probe.colour); }
    action tell_and(bit<9> port) { tell(); sm.egress_spec = port; }
    table metered {
        key = { hdr.probe.key: ternary; }
        actions = { tell; tell_and; }
        default_action = tell();
        meters = by_entry;
        counters = hits;
        support_timeout = true;
        size = 16;
    }
    apply {
        sm.egress_spec = 1;
        if (hdr.probe.key >= 0x80) {
            by_bytes.execute_meter((bit<32>)(hdr.probe.key & 0x7), hdr.probe.colour);
        } else {
            metered.apply();
        }
        cells.read(meta.cell, (bit<32>)hdr.probe.key);
        helper(meta.cell.last);
        cells.write((bit<32>)hdr.probe.key, {hdr.probe.value + 1, -3, true});
        plain.write((bit<32>)hdr.probe.key, hdr.probe.colour);
        digest<learnt_t>(1, {sm.ingress_port, hdr.probe, sm.parser_error});
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }

control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.probe); }
}

V1Switch(P(), Verify(), MyIngress(), MyEgress(), Compute(), D()) main;
