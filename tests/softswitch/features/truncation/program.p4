// truncate: the shortest call holds, headers and all; longer than the packet is no change.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<16> first;
    bit<16> second;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

#include "../include/blocks.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.h.first != 0xffff) {
            truncate((bit<32>)hdr.h.first);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.h.second != 0xffff) {
            truncate((bit<32>)hdr.h.second);
        }
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;
