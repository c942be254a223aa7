// truncate: the shortest call holds, headers and all; longer than the packet is no change.
header h_t {
    bit<16> first;
    bit<16> second;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

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

/* packets
packet 0 ffff ffff aabbccdd
expect 1 ffffffffaabbccdd
packet 0 0006 ffff aabbccdd
expect 1 0006ffffaabb
packet 0 0006 0007 aabbccdd
expect 1 00060007aabb
packet 0 0007 0006 aabbccdd
expect 1 00070006aabb
packet 0 ffff 0003 aabbccdd
expect 1 ffff00
packet 0 0100 0100 aabbccdd
expect 1 01000100aabbccdd
*/
