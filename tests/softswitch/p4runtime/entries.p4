// One table of every kind that P4Runtime treats differently.
#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<16> exact_key;
    bit<32> lpm_key;
    bit<32> ternary_key;
    bit<16> range_key;
    bit<8>  optional_key;
    bit<8>  mark;
}

struct headers_t { probe_t probe; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    counter(16, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) exact_hits;

    action mark(bit<8> value) { hdr.probe.mark = value; }
    action send(bit<9> port) { sm.egress_spec = port; }
    action group(bit<16> id) { sm.mcast_grp = id; }
    action drop() { mark_to_drop(sm); }

    table exact_table {
        key = { hdr.probe.exact_key: exact; }
        actions = { send; group; drop; }
        default_action = drop;
        counters = exact_hits;
        size = 4;
    }

    table lpm_table {
        key = { hdr.probe.lpm_key: lpm; }
        actions = { mark; NoAction; }
    }

    table acl_table {
        key = {
            hdr.probe.ternary_key:  ternary;
            hdr.probe.range_key:    range;
            hdr.probe.optional_key: optional;
        }
        actions = { mark; @defaultonly NoAction; @tableonly drop; }
        const default_action = NoAction();
    }

    table const_table {
        key = { hdr.probe.exact_key: exact; }
        actions = { mark; NoAction; }
        const entries = {
            1: mark(0x11);
            2: mark(0x22);
        }
    }

    table keyless_table {
        actions = { mark; NoAction; }
        default_action = NoAction();
    }

    apply {
        seen.count((bit<32>)hdr.probe.exact_key);
        keyless_table.apply();
        const_table.apply();
        lpm_table.apply();
        acl_table.apply();
        exact_table.apply();
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }

control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }

V1Switch(P(), Verify(), MyIngress(), MyEgress(), Compute(), D()) main;
