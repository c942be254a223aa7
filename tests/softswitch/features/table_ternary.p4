// Priorities decide between overlapping ternary, range, optional and mixed matches.
header key_t {
    bit<16> a;
    bit<8>  b;
    bit<8>  c;
    bit<8>  t;
    bit<8>  r;
    bit<8>  o;
    bit<8>  m;
}

struct headers_t {
    key_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action t(bit<8> v) { hdr.h.t = v; }
    action r(bit<8> v) { hdr.h.r = v; }
    action o(bit<8> v) { hdr.h.o = v; }
    action m(bit<8> v) { hdr.h.m = v; }

    table ternaries {
        key = { hdr.h.a: ternary; hdr.h.b: ternary; }
        actions = { t; }
        default_action = t(0);
    }
    table ranges {
        key = { hdr.h.a: range; }
        actions = { r; }
        default_action = r(0);
    }
    table optionals {
        key = { hdr.h.b: optional; hdr.h.c: optional; }
        actions = { o; }
        default_action = o(0);
    }
    table mixed {
        key = { hdr.h.b: exact; hdr.h.a: lpm; hdr.h.c: ternary; }
        actions = { m; }
        default_action = m(0);
    }
    apply {
        ternaries.apply();
        ranges.apply();
        optionals.apply();
        mixed.apply();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
add ternaries prio=10 0x1200&&&0xff00 _ => t(1)
add ternaries prio=20 0x1234 5 => t(2)
add ternaries prio=30 _ 0x80&&&0x80 => t(3)
add ternaries prio=5 _ _ => t(4)
add ranges prio=10 0..0x7fff => r(1)
add ranges prio=20 0x1200..0x12ff => r(2)
add ranges prio=15 0x1234..0x1234 => r(3)
add optionals prio=10 5 _ => o(1)
add optionals prio=20 _ 6 => o(2)
add optionals prio=30 5 6 => o(3)
add mixed prio=10 5 0x1200/8 _ => m(1)
add mixed prio=20 5 0x0000/0 6 => m(2)
add mixed prio=1 6 0x1234/16 0&&&1 => m(3)
packet 0 1234 05 06 00000000
expect 1 1234050602020302
packet 0 1234 05 07 00000000
expect 1 1234050702020101
packet 0 1200 85 06 00000000
expect 1 1200850603020200
packet 0 7fff 06 06 00000000
expect 1 7fff060604010200
packet 0 8000 00 00 00000000
expect 1 8000000004000000
packet 0 1234 06 08 00000000
expect 1 1234060801020003
packet 0 1234 06 09 00000000
expect 1 1234060901020000
delete ternaries prio=20 0x1234 5
delete ranges prio=20 0x1200..0x12ff
packet 0 1234 05 06 00000000
expect 1 1234050601030302
*/
