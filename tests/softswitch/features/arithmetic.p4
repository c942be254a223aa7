// + - * & | ^ ~ and unary minus at byte, odd and wide widths; all wrap.
header operands_t {
    bit<8>   a8;
    bit<8>   b8;
    bit<5>   a5;
    bit<11>  a11;
    bit<32>  a32;
    bit<32>  b32;
    bit<48>  a48;
    bit<128> a128;
    bit<128> b128;
}

header results_t {
    bit<8>   sum8;
    bit<8>   difference8;
    bit<8>   product8;
    bit<5>   sum5;
    bit<11>  product11;
    bit<32>  sum32;
    bit<32>  product32;
    bit<48>  negated48;
    bit<48>  inverted48;
    bit<128> sum128;
    bit<128> difference128;
    bit<128> mixed128;
    bit<32>  mixed32;
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
        hdr.o.sum8 = hdr.h.a8 + hdr.h.b8;
        hdr.o.difference8 = hdr.h.a8 - hdr.h.b8;
        hdr.o.product8 = hdr.h.a8 * hdr.h.b8;
        hdr.o.sum5 = hdr.h.a5 + 5w17;
        hdr.o.product11 = hdr.h.a11 * 3;
        hdr.o.sum32 = hdr.h.a32 + hdr.h.b32;
        hdr.o.product32 = hdr.h.a32 * hdr.h.b32;
        hdr.o.negated48 = -hdr.h.a48;
        hdr.o.inverted48 = ~hdr.h.a48;
        hdr.o.sum128 = hdr.h.a128 + hdr.h.b128;
        hdr.o.difference128 = hdr.h.a128 - hdr.h.b128;
        hdr.o.mixed128 = (hdr.h.a128 & hdr.h.b128) ^ ~(hdr.h.a128 | 5);
        hdr.o.mixed32 = (hdr.h.a32 & 0xff00ff00) | (hdr.h.b32 ^ hdr.h.a32) & 0x00ff00ff;
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
#        a8 b8 a5a11 a32      b32      a48          a128                             b128
packet 0 c8 64 f7ff ffffffff 00000002 000000000001 ffffffffffffffffffffffffffffffff 00000000000000000000000000000001
expect 1 c864f7ffffffffff00000002000000000001ffffffffffffffffffffffffffffffff000000000000000000000000000000012c64207ffd00000001fffffffefffffffffffffffffffffffe00000000000000000000000000000000fffffffffffffffffffffffffffffffe00000000000000000000000000000001fffffffd
packet 0 01 02 0801 89abcdef 12345678 123456789abc 0123456789abcdeffedcba9876543210 8000000000000000ffffffffffffffff
expect 1 0102080189abcdef12345678123456789abc0123456789abcdeffedcba98765432108000000000000000ffffffffffffffff03ff0290039be02467e242d208edcba9876544edcba98765438123456789abcdf0fedcba987654320f8123456789abcdeefedcba9876543211fedcba9876543210fffffffffffffffa899fcd97
packet 0 00 00 0000 00000000 00000000 000000000000 00000000000000000000000000000000 00000000000000000000000000000000
expect 1 000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000088000000000000000000000000000000ffffffffffff0000000000000000000000000000000000000000000000000000000000000000fffffffffffffffffffffffffffffffa00000000
*/
