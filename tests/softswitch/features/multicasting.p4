// Multicast: a copy per member, with its replication id; mark_to_drop takes it back.
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

#include "include/one_header.p4"

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

/* packets
group 1 1:10 2:20 3:30
group 2 4:1 4:2
packet 2 0001 00 0000 0000 00 aa
expect 1 000100000a000145aa
expect 3 000100001e000345aa
packet 9 0001 01 0000 0000 00 aa
expect nothing
packet 9 0001 02 0000 0000 00 aa
expect 4 0001020001000445aa
expect 4 0001020002000445aa
packet 9 0001 03 0000 0000 00 aa
expect 1 000103000a000145aa
expect 2 0001030014000245aa
expect 3 000103001e000345aa
packet 9 0000 03 0000 0000 00 aa
expect 30 0000030000001e40aa
packet 9 0007 00 0000 0000 00 aa                # no such group
expect nothing
*/
