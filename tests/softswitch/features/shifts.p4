// Shifts by constants and by fields, by the width and more; arithmetic ones of int<W>.
header operands_t {
    bit<8>  amount;
    bit<32> u;
    int<32> s;
    bit<5>  u5;
    bit<3>  unused;
    bit<64> u64;
    int<16> s16;
}

header results_t {
    bit<32> left;
    bit<32> right;
    int<32> sleft;
    int<32> sright;
    bit<5>  left5;
    bit<3>  unused;
    bit<64> left64;
    bit<64> right64;
    int<16> sright16;
    bit<32> constant_left;
    int<32> constant_right;
    bit<32> beyond;
    int<32> sbeyond;
}

struct headers_t {
    operands_t h;
    results_t  o;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.o.setValid();
        hdr.o.left = hdr.h.u << hdr.h.amount;
        hdr.o.right = hdr.h.u >> hdr.h.amount;
        hdr.o.sleft = hdr.h.s << hdr.h.amount;
        hdr.o.sright = hdr.h.s >> hdr.h.amount;
        hdr.o.left5 = hdr.h.u5 << hdr.h.amount;
        hdr.o.left64 = hdr.h.u64 << hdr.h.amount;
        hdr.o.right64 = hdr.h.u64 >> hdr.h.amount;
        hdr.o.sright16 = hdr.h.s16 >> hdr.h.amount;
        hdr.o.constant_left = hdr.h.u << 4;
        hdr.o.constant_right = hdr.h.s >> 4;
        hdr.o.beyond = hdr.h.u >> 32;
        hdr.o.sbeyond = hdr.h.s >> 40;
        hdr.h.setInvalid();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
#        n  u        s        u5 u64              s16
packet 0 00 89abcdef 89abcdef f8 0123456789abcdef 8000
expect 1 89abcdef89abcdef89abcdef89abcdeff80123456789abcdef0123456789abcdef80009abcdef0f89abcde00000000ffffffff
packet 0 01 89abcdef 89abcdef f8 8123456789abcdef 8000
expect 1 13579bde44d5e6f713579bdec4d5e6f7f002468acf13579bde4091a2b3c4d5e6f7c0009abcdef0f89abcde00000000ffffffff
packet 0 04 89abcdef 79abcdef f8 0123456789abcdef 7fff
expect 1 9abcdef0089abcde9abcdef0079abcde80123456789abcdef000123456789abcde07ff9abcdef0079abcde0000000000000000
packet 0 05 89abcdef 89abcdef f8 0123456789abcdef 8765
expect 1 3579bde0044d5e6f3579bde0fc4d5e6f002468acf13579bde000091a2b3c4d5e6ffc3b9abcdef0f89abcde00000000ffffffff
packet 0 1f 89abcdef 89abcdef f8 0123456789abcdef 8765
expect 1 800000000000000180000000ffffffff00c4d5e6f7800000000000000002468acfffff9abcdef0f89abcde00000000ffffffff
packet 0 20 89abcdef 89abcdef f8 0123456789abcdef 8765
expect 1 000000000000000000000000ffffffff0089abcdef000000000000000001234567ffff9abcdef0f89abcde00000000ffffffff
packet 0 3f 89abcdef 79abcdef f8 8123456789abcdef 7765
expect 1 00000000000000000000000000000000008000000000000000000000000000000100009abcdef0079abcde0000000000000000
packet 0 40 89abcdef 89abcdef f8 8123456789abcdef 8765
expect 1 000000000000000000000000ffffffff0000000000000000000000000000000000ffff9abcdef0f89abcde00000000ffffffff
packet 0 ff 89abcdef 89abcdef f8 8123456789abcdef 8765
expect 1 000000000000000000000000ffffffff0000000000000000000000000000000000ffff9abcdef0f89abcde00000000ffffffff
*/
