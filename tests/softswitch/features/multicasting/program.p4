// Multicast: a copy per member, with its replication id; mark_to_drop takes it back.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<16> group;
    bit<8>  op;
    bit<16> rid;
    bit<16> port;
    bit<8>  type;
}

struct headers_t {
    h_t h;
}

struct metadata_t {
    bit<8> seen;
}

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
        meta.seen = 0x40;
        standard_metadata.mcast_grp = hdr.h.group;
        if (hdr.h.op == 1) {
            mark_to_drop(standard_metadata);
        } else if (hdr.h.op == 2) {
            mark_to_drop(standard_metadata);
            standard_metadata.mcast_grp = 2;
        } else if (hdr.h.op == 3) {
            standard_metadata.egress_spec = 30;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.h.rid = standard_metadata.egress_rid;
        hdr.h.port = (bit<16>)standard_metadata.egress_port;
        hdr.h.type = (bit<8>)standard_metadata.instance_type | meta.seen;
        meta.seen = 0x80;               // of this copy alone
        if (standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        }
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;
