// Registers of several widths, read, written and read again; indices out of range; bool and int<W> cells.
header h_t {
    bit<8>  op;
    bit<8>  index;
    bit<32> value;
    bit<48> wide;
    bit<3>  narrow;
    bit<5>  unused;
    int<16> number;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    register<bit<32>>(8) values;
    register<bit<48>>(4) wides;
    register<bit<3>>(4) narrows;
    register<int<16>>(4) numbers;
    register<bit<1>>(2) flags;

    action accumulate(bit<32> step) {
        bit<32> old;
        values.read(old, (bit<32>)hdr.h.index);
        values.write((bit<32>)hdr.h.index, old + step);
        values.read(hdr.h.value, (bit<32>)hdr.h.index);
    }
    table steps {
        key = { hdr.h.op: exact; }
        actions = { accumulate; NoAction; }
        default_action = NoAction();
    }
    apply {
        bit<32> index = (bit<32>)hdr.h.index;
        steps.apply();
        if (hdr.h.op == 1) {
            wides.write(index, hdr.h.wide);
            narrows.write(index, hdr.h.narrow);
            numbers.write(index, hdr.h.number);
            flags.write(index, 1);
        } else if (hdr.h.op == 2) {
            wides.read(hdr.h.wide, index);
            narrows.read(hdr.h.narrow, index);
            numbers.read(hdr.h.number, index);
            bit<1> flag;
            flags.read(flag, index);
            hdr.h.unused[0:0] = flag;
            hdr.h.number = hdr.h.number >> 1;
        }
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
write values 3 0xfffffff0
add steps 7 => accumulate(0x10000001)
add steps 8 => accumulate(0)
packet 0 07 00 00000000 000000000000 00 0000
expect 1 070010000001000000000000000000
packet 0 07 03 00000000 000000000000 00 0000
expect 1 07030ffffff1000000000000000000
packet 0 08 08 12345678 000000000000 00 0000          # out of range: reads zero
expect 1 080800000000000000000000000000
packet 0 01 02 00000000 123456789abc a0 8001
expect 1 010200000000123456789abca08001
packet 0 01 00 00000000 123456789abc a0 8001
expect 1 010000000000123456789abca08001
packet 0 01 04 00000000 ffffffffffff ff ffff          # out of range: nowhere
expect 1 010400000000ffffffffffffffffff
packet 0 02 02 00000000 000000000000 00 0000
expect 1 020200000000123456789abca0c000
packet 0 02 00 00000000 000000000000 00 0000
expect 1 020000000000123456789abca1c000
packet 0 02 05 00000000 ffffffffffff ff ffff
expect 1 0205000000000000000000001e0000
register values 3 = 0x0ffffff1
register values 0 = 0x10000001
register wides 2 = 0x123456789abc
register narrows 2 = 5
register numbers 2 = -32767
register flags 0 = 1
*/
