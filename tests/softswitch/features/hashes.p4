// Every hash algorithm, with base and maximum, into targets narrower and wider than the hash.
header h_t {
    bit<8>  a;
    bit<16> b;
    bit<4>  c;
    bit<4>  d;
    bit<48> e;
}

header hashes_t {
    bit<32> crc32;
    bit<16> crc16;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;
    bit<16> odd;
    bit<8>  reduced;
    bit<32> offset;
    bit<16> wide_max;
    bit<32> zero_max;
}

struct headers_t {
    h_t      h;
    hashes_t o;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.o.setValid();
        hash(hdr.o.crc32, HashAlgorithm.crc32, 32w0, { hdr.h.a, hdr.h.b, hdr.h.c, hdr.h.d, hdr.h.e }, 64w0x100000000);
        hash(hdr.o.crc16, HashAlgorithm.crc16, 16w0, { hdr.h.a, hdr.h.b, hdr.h.c, hdr.h.d, hdr.h.e }, 32w0x10000);
        hash(hdr.o.csum16, HashAlgorithm.csum16, 16w0, { hdr.h.a, hdr.h.b, hdr.h.c, hdr.h.d, hdr.h.e }, 32w0x10000);
        hash(hdr.o.xor16, HashAlgorithm.xor16, 16w0, { hdr.h.a, hdr.h.b, hdr.h.c, hdr.h.d, hdr.h.e }, 32w0x10000);
        hash(hdr.o.identity, HashAlgorithm.identity, 64w0, { hdr.h.e, hdr.h.b }, 64w0xffffffffffffffff);
        hash(hdr.o.odd, HashAlgorithm.crc16, 16w0, { hdr.h.a, hdr.h.b }, 32w0x10000);
        hash(hdr.o.reduced, HashAlgorithm.crc32, 8w3, { hdr.h.e }, 8w100);
        hash(hdr.o.offset, HashAlgorithm.identity, 32w1000, { hdr.h.b }, 32w24);
        hash(hdr.o.wide_max, HashAlgorithm.xor16, 16w0xff00, { hdr.h.b, hdr.h.e }, 16w0xffff);
        hash(hdr.o.zero_max, HashAlgorithm.crc32, 32w77, { hdr.h.b }, 32w0);
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 31 3233 34 353637383930
expect 1 31323334353637383930261daee5c57af5fa39383536373839303233ba0414000003f3080d0000004d
packet 0 00 0000 00 000000000000
expect 1 00000000000000000000e38a68760000ffff00000000000000000000000062000003e8ff000000004d
packet 0 ff ffff ff ffffffffffff
expect 1 ffffffffffffffffffff0fe4b35c83310000ffff000000000000000080311b000003f7ff000000004d
packet 0 12 3456 78 9abcdef01234
expect 1 123456789abcdef01234bc07255cc2c00b7212349abcdef012343456fb3666000003ee612e0000004d
*/
