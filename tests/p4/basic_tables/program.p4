// All match kinds, default actions, counters, registers, multicast and mirroring, as scripts set them up.
header h_t {
    bit<16> a;
    bit<8>  b;
    bit<8>  c;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

#include "../../softswitch/features/include/one_header.p4"

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    counter(4, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets) hits;
    register<bit<8>>(8) cells;
    action to(bit<9> port, bit<8> mark) {
        sm.egress_spec = port;
        hdr.h.c = mark;
    }
    action flood(bit<16> group) {
        sm.mcast_grp = group;
    }
    action mirror() {
        clone(CloneType.I2E, 32w5);
        sm.egress_spec = 1;
    }
    action drop() {
        mark_to_drop(sm);
    }
    table exactly {
        key = { hdr.h.a: exact; hdr.h.isValid(): exact; }
        actions = { to; flood; mirror; drop; }
        default_action = drop();
        counters = hits;
    }
    table longest {
        key = { hdr.h.a: lpm; }
        actions = { to; NoAction; }
    }
    table first {
        key = { hdr.h.b: ternary; hdr.h.a: ternary @name("aa"); }
        actions = { to; NoAction; }
    }
    apply {
        seen.count((bit<32>) hdr.h.b & 3);
        cells.read(hdr.h.c, 5);
        if (!exactly.apply().hit) {
            if (!longest.apply().hit) {
                first.apply();
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.instance_type == 1) {
            hdr.h.c = 0xcc;
        } else if (sm.instance_type != 0) {
            hdr.h.c = (bit<8>) sm.egress_rid;
        }
    }
}

V1Switch(P(), NoChecksums(), I(), E(), NoChecksums(), EmitAll()) main;
