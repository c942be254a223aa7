// Keys of type error and of enums, masked and indexed keys, one action bound in two tables, entry order.
error { Mine }
enum colour_t { red, green, blue }
header h_t { bit<8> a; bit<8> b; }
struct headers_t { h_t[2] h; }
struct metadata_t { colour_t colour; bit<1> i; }

#include "../../softswitch/features/include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.h.next);
        hdr.h.next = { 1, 2 };
        error wrong = hdr.h[0].a == 7 ? error.Mine : error.NoMatch;
        verify(hdr.h[0].a < 7, wrong);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action to(bit<9> port) { sm.egress_spec = port; }
    action put(inout bit<8> where, bit<8> v) { where = v; }
    table errors {
        key = { sm.parser_error: exact; }
        actions = { to; }
        const entries = { error.NoMatch: to(2); error.Mine: to(3); error.NoError: to(1); }
    }
    table colours { key = { meta.colour: exact; } actions = { put(hdr.h[0].b); } }
    table masked { key = { hdr.h[0].a & 0xf0: exact; hdr.h[meta.i].b: exact; } actions = { put(hdr.h[1].b); } }
    table ordered {
        key = { hdr.h[0].a: ternary; }
        actions = { to; NoAction; }
        largest_priority_wins = false;
        priority_delta = 10;
        entries = { priority = 20: 0x50 &&& 0xf0: to(5); 0x51: to(6); priority = 5: 0x53: to(7); }
        junk = 3;
    }
    table annotated {
        key = { hdr.h[0].a: ternary; }
        actions = { to; NoAction; }
        const entries = { 0x60 &&& 0xf0: to(8) @priority(9); 0x61: to(9) @priority(3); }
    }
    apply {
        errors.apply();
        if (hdr.h[0].b == 1) { meta.colour = colour_t.blue; }
        if (hdr.h[0].a == 0x10) { meta.i = 1; }
        colours.apply();
        masked.apply();
        ordered.apply();
        annotated.apply();
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
