// Casts between widths, signs, bool and bit<1>; sign extension follows the operand.
header in_t {
    bit<8>  u8;
    int<8>  s8;
    bit<16> u16;
}

header out_t {
    bit<16> widened;
    int<16> widened_signed;
    bit<16> via_signed;
    bit<16> via_unsigned;
    bit<8>  narrowed;
    int<8>  as_signed;
    bit<8>  as_unsigned;
    bit<1>  flag;
    bit<7>  narrow7;
    int<32> from_bits;
    int<32> sign_kept;
}

struct headers_t {
    in_t  h;
    out_t o;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        bool odd = (bool)hdr.h.u8[0:0];
        hdr.o.setValid();
        hdr.o.widened = (bit<16>)hdr.h.u8;
        hdr.o.widened_signed = (int<16>)hdr.h.s8;
        hdr.o.via_signed = (bit<16>)(int<16>)hdr.h.s8;
        hdr.o.via_unsigned = (bit<16>)(bit<8>)hdr.h.s8;
        hdr.o.narrowed = (bit<8>)hdr.h.u16;
        hdr.o.as_signed = (int<8>)hdr.h.u8;
        hdr.o.as_unsigned = (bit<8>)hdr.h.s8;
        hdr.o.flag = (bit<1>)odd;
        hdr.o.narrow7 = (bit<7>)hdr.h.u16;
        hdr.o.from_bits = (int<32>)(bit<32>)hdr.h.u16;
        hdr.o.sign_kept = (int<32>)(int<16>)hdr.h.u16;
        hdr.h.setInvalid();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 01 80 1234
expect 1 0001ff80ff800080340180b40000123400001234
packet 0 ff 7f fedc
expect 1 00ff007f007f007fdcff7fdc0000fedcfffffedc
packet 0 80 ff 8000
expect 1 0080ffffffff00ff0080ff0000008000ffff8000
*/
