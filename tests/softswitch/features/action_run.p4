// switch (table.apply().action_run) with fall-through, default and an action of the default entry.
header key_t {
    bit<8> a;
    bit<8> r;
}

struct headers_t {
    key_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action one(bit<8> v) { hdr.h.r = v; }
    action two() { hdr.h.r = hdr.h.r + 1; }
    action three() { hdr.h.r = hdr.h.r + 2; }
    action four() { }

    table t {
        key = { hdr.h.a: exact; }
        actions = { one; two; three; four; @defaultonly NoAction; }
        default_action = NoAction();
    }
    table u {
        key = { hdr.h.r: exact; }
        actions = { one; four; }
        default_action = four();
    }
    table v {
        key = { hdr.h.r: exact; }
        actions = { one; four; }
        default_action = four();
    }
    apply {
        standard_metadata.egress_spec = 1;
        switch (t.apply().action_run) {
            one: {
                if (u.apply().hit) {
                    standard_metadata.egress_spec = 20;
                } else {
                    standard_metadata.egress_spec = 21;
                }
            }
            two:
            three: { standard_metadata.egress_spec = 23; }
            NoAction: { standard_metadata.egress_spec = 24; }
            default: { standard_metadata.egress_spec = 25; }
        }
        switch (v.apply().action_run) {
            four: { hdr.h.a = 0xff; }
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
add t 1 => one(0x10)
add t 2 => two()
add t 3 => three()
add t 4 => four()
add t 5 => one(0x20)
add u 0x10 => one(0x55)
packet 0 01 00
expect 20 ff55
packet 0 02 00
expect 23 ff01
packet 0 03 00
expect 23 ff02
packet 0 04 00
expect 25 ff00
packet 0 05 00
expect 21 ff20
packet 0 06 00
expect 24 ff00
packet 0 02 0f
expect 23 ff10
*/
