// Checksums over the payload too, of even and odd length; crc32 in a checksum field.
header h_t {
    bit<16> tag;
    bit<16> checksum;
    bit<32> crc;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum_with_payload(true, { hdr.h.tag }, hdr.h.checksum, HashAlgorithm.csum16);
    }
}

control U(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.h.isValid(), { hdr.h.tag }, hdr.h.checksum, HashAlgorithm.csum16);
        update_checksum(true, { hdr.h.tag, 16w0xabcd }, hdr.h.crc, HashAlgorithm.crc32);
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1 + (bit<9>)standard_metadata.checksum_error;
        hdr.h.tag = hdr.h.tag + 1;
    }
}

V1Switch(P(), V(), C(), PlainEgress(), U(), EmitAll()) main;

/* packets
packet 0 0001 fffe 00000000
expect 1 0002fffd8ae6d05d
packet 0 0001 cbfd 00000000 3401
expect 1 0002cbfc8ae6d05d3401
packet 0 0001 cbfe 00000000 3400 01
expect 2 0002cafd8ae6d05d340001
packet 0 0001 cafe 00000000 3400 01
expect 1 0002cafd8ae6d05d340001
packet 0 0001
expect 1 0001
*/
