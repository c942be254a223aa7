// Longest prefix wins, whatever the order of insertion; /0 and /32; lpm beside exact.
header key_t {
    bit<32> addr;
    bit<8>  vrf;
    bit<8>  result;
}

struct headers_t {
    key_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action to(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action result(bit<8> value) {
        hdr.h.result = value;
    }
    table routes {
        key = { hdr.h.addr: lpm; }
        actions = { to; }
        default_action = to(100);
    }
    table vrf_routes {
        key = { hdr.h.vrf: exact; hdr.h.addr: lpm; }
        actions = { result; NoAction; }
        default_action = NoAction();
    }
    apply {
        routes.apply();
        vrf_routes.apply();
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
add routes 0x0a000000/8 => to(1)
add routes 0x0a010000/16 => to(2)
add routes 0x0a010203/32 => to(3)
add routes 0x0a010200/24 => to(4)
add routes 0x80000000/1 => to(5)
add vrf_routes 1 0x0a000000/8 => result(0x11)
add vrf_routes 1 0x0a800000/9 => result(0x12)
add vrf_routes 2 0/0 => result(0x20)
packet 0 0a010203 01 00
expect 3 0a0102030111
packet 0 0a010204 01 00
expect 4 0a0102040111
packet 0 0a010304 02 00
expect 2 0a0103040220
packet 0 0a820304 01 00
expect 1 0a8203040112
packet 0 80000000 01 00
expect 5 800000000100
packet 0 7fffffff 02 00
expect 100 7fffffff0220
packet 0 01020304 03 00
expect 100 010203040300
add routes 0/0 => to(6)
packet 0 01020304 03 00
expect 6 010203040300
delete routes 0x0a010200/24
packet 0 0a010204 01 00
expect 2 0a0102040111
*/
