// Exact tables of one and of several keys; action data; hit and miss; modified and deleted entries.
header key_t {
    bit<8>  a;
    bit<16> b;
    bit<48> c;
    bit<1>  d;
    bit<7>  e;
    bit<8>  result;
}

struct headers_t {
    key_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action set(bit<9> port, bit<8> result) {
        standard_metadata.egress_spec = port;
        hdr.h.result = result;
    }
    action refuse() {
        mark_to_drop(standard_metadata);
    }
    action mark() {
        hdr.h.e = 0x7f;
    }
    table one {
        key = { hdr.h.a: exact; }
        actions = { set; refuse; NoAction; }
        default_action = set(9, 0xdd);
        size = 4;
    }
    table several {
        key = { hdr.h.b: exact; hdr.h.c: exact @name("mac"); hdr.h.d: exact; hdr.h.a + 1: exact @name("next"); }
        actions = { mark; NoAction; }
        default_action = NoAction();
    }
    apply {
        if (one.apply().miss) {
            hdr.h.b = 0xffff;
        }
        if (!several.apply().hit) {
            hdr.h.e = 1;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
add one 1 => set(3, 0x11)
add one 2 => refuse()
add one 3 => NoAction()
add several 0x0506 0x0a0b0c0d0e0f 1 2 => mark()
packet 5 01 0506 0a0b0c0d0e0f 80 00 cafe
expect 3 0105060a0b0c0d0e0fff11cafe
packet 5 01 0506 0a0b0c0d0e0f 00 00 cafe
expect 3 0105060a0b0c0d0e0f0111cafe
packet 5 01 0506 0a0b0c0d0e0e 80 00 cafe
expect 3 0105060a0b0c0d0e0e8111cafe
packet 5 02 0506 0a0b0c0d0e0f 80 00
expect nothing
packet 5 03 0506 0a0b0c0d0e0f 80 00
expect 0 0305060a0b0c0d0e0f8100
packet 5 04 0506 0a0b0c0d0e0f 80 00
expect 9 04ffff0a0b0c0d0e0f81dd
modify one 1 => set(4, 0x44)
delete one 2
default one => refuse()
packet 5 01 0506 0a0b0c0d0e0f 80 00
expect 4 0105060a0b0c0d0e0fff44
packet 5 02 0506 0a0b0c0d0e0f 80 00
expect nothing
default one
packet 5 02 0506 0a0b0c0d0e0f 80 00
expect 9 02ffff0a0b0c0d0e0f81dd
*/
