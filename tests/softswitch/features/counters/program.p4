// Indirect counters by a field, out of range; direct counters, with hit, miss and a deleted entry.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<8> a;
    bit<8> b;
}

struct headers_t {
    key_t k;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.k);
        transition accept;
    }
}

#include "../include/blocks.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    counter(8, CounterType.packets_and_bytes) both;
    counter(4, CounterType.packets) packets_only;
    counter(4, CounterType.bytes) bytes_only;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_counter(CounterType.packets) masked_hits;

    action to(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action counted(bit<9> port) {
        standard_metadata.egress_spec = port;
        masked_hits.count();
    }
    table exact_hits {
        key = { hdr.k.b: exact; }
        actions = { to; NoAction; }
        default_action = NoAction();
        counters = hits;
    }
    table ternary_hits {
        key = { hdr.k.b: ternary; }
        actions = { counted; NoAction; }
        default_action = NoAction();
        counters = masked_hits;
    }
    apply {
        standard_metadata.egress_spec = 1;
        both.count((bit<32>)hdr.k.a);
        packets_only.count((bit<32>)hdr.k.a[1:0]);
        bytes_only.count((bit<32>)hdr.k.a[1:0]);
        exact_hits.apply();
        ternary_hits.apply();
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    counter(512, CounterType.packets_and_bytes) sent;
    apply {
        sent.count((bit<32>)standard_metadata.egress_port);
        hdr.k.setInvalid();
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;
