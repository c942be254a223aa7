// Controls in controls, with in, out and inout parameters; two instances of one control have
// tables and registers of their own; one instance applied twice shares them.
header h_t {
    bit<8>  a;
    bit<8>  b;
    bit<8>  c;
    bit<16> d;
}

struct headers_t {
    h_t h;
}

struct metadata_t {
    bit<8> m;
}

#include "include/one_header.p4"

control Count(in bit<8> index, out bit<16> result, inout bit<8> touched)(bit<16> step) {
    register<bit<16>>(4) totals;
    action add(bit<8> extra) {
        touched = touched + extra;
    }
    table extras {
        key = { index: exact; }
        actions = { add; NoAction; }
        default_action = NoAction();
    }
    apply {
        bit<16> value;
        totals.read(value, (bit<32>)index);
        value = value + step;
        totals.write((bit<32>)index, value);
        extras.apply();
        result = value;
        if (index == 2) {
            return;
        }
        touched = touched | 0x80;
    }
}

control Pair(inout h_t h, out bit<16> sum) {
    Count(1) first;
    Count(100) second;
    apply {
        bit<16> x;
        bit<16> y;
        first.apply(h.a, x, h.b);
        second.apply(h.a, y, h.c);
        first.apply(h.a, x, h.c);
        sum = x + y;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    Pair() pair;
    Count(7) own;
    apply {
        bit<16> unused;
        pair.apply(hdr.h, hdr.h.d);
        own.apply(0, unused, meta.m);
        standard_metadata.egress_spec = (bit<9>)(unused[4:0]);
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
add pair.first.extras 1 => add(1)
add pair.second.extras 1 => add(2)
packet 0 01 00 00 0000
expect 7 0181830066
packet 0 01 10 20 ffff
expect 14 0191a300cc
packet 0 02 00 00 0000
expect 21 0200000066
packet 0 03 00 00 0000
expect 28 0380800066
register pair.first.totals 1 = 4
register pair.second.totals 1 = 200
register pair.first.totals 2 = 2
register own.totals 0 = 28
*/
