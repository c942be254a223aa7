// Entries in the source: the first of several that match wins; masks, ranges and don't-cares;
// a table with no key; a default action with arguments.
header key_t {
    bit<8>  a;
    bit<16> b;
    bit<8>  r1;
    bit<8>  r2;
    bit<8>  r3;
}

struct headers_t {
    key_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

const bit<8> SPECIAL = 0x42;

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action one(bit<8> v) { hdr.h.r1 = v; }
    action two(bit<8> v, bit<8> w) { hdr.h.r2 = v ^ w; }
    action three(bit<9> port, bit<8> v) {
        standard_metadata.egress_spec = port;
        hdr.h.r3 = v;
    }

    table exact_entries {
        key = { hdr.h.a: exact; }
        actions = { one; NoAction; }
        const entries = {
            1:       one(0x11);
            SPECIAL: one(0x22);
            0x7f:    NoAction();
        }
        const default_action = one(0xff);
    }
    table masked_entries {
        key = { hdr.h.a: ternary; hdr.h.b: range; }
        actions = { two; }
        const entries = {
            (0x10 &&& 0xf0, 100 .. 200): two(1, 0);
            (0x10 &&& 0xf0, _):          two(2, 0);
            (_, 0 .. 150):               two(3, 0x80);
            (0x42, 7):                   two(4, 0);
            (_, _):                      two(5, SPECIAL);
        }
        default_action = two(0, 0);
    }
    table prefix_entries {
        key = { hdr.h.b: lpm; }
        actions = { one; NoAction; }
        const entries = {
            0x1200 &&& 0xff00: one(0x81);
            0x1234:            one(0x82);
        }
        default_action = NoAction();
    }
    table always {
        actions = { three; }
        const default_action = three(6, 0x33);
    }
    apply {
        exact_entries.apply();
        masked_entries.apply();
        prefix_entries.apply();
        always.apply();
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 01 0000 000000
expect 6 010000118333
packet 0 42 0007 000000
expect 6 420007228333
packet 0 42 00ff 000000
expect 6 4200ff224733
packet 0 7f 0100 aa0000
expect 6 7f0100aa4733
packet 0 1f 0064 000000
expect 6 1f0064ff0133
packet 0 1f 00c9 000000
expect 6 1f00c9ff0233
packet 0 99 1234 000000
expect 6 991234824733
packet 0 99 1235 000000
expect 6 991235814733
*/
