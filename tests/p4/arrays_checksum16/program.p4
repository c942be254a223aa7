// Arrays of numbers in headers and metadata, a Checksum16 and a size from an enum.
enum bit<32> sizes { CELLS = 4 }
header h_t { bit<8> op; bit<8>[4] a; bit<16> sum; }
struct headers_t { h_t h; }
struct metadata_t { bit<8>[4] kept; }

#include "../../softswitch/features/include/one_header.p4"

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    Checksum16() checksum;
    register<bit<8>>(sizes.CELLS) cells;
    apply {
        sm.egress_spec = 1;
        if (hdr.h.op == 1) {
            meta.kept = hdr.h.a;
            hdr.h.a[0] = meta.kept[3];
            hdr.h.a[3][7:4] = hdr.h.a[1][3:0];
        } else if (hdr.h.op == 2) {
            hdr.h.a = { 1, 2, 3, 4 };
            if (hdr.h.a == meta.kept) { sm.egress_spec = 2; }
        } else if (hdr.h.op == 3) {
            hdr.h.sum = checksum.get({ hdr.h.a, 16w0xffff });
            cells.write(3, hdr.h.a[0]);
        }
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
