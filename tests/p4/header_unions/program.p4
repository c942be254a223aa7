// At most one header of a union is valid; what makes one valid ends the others.
header tag_t { bit<8> kind; bit<8> flags; }
header short_t { bit<8> a; }
header long_t { bit<16> a; bit<8> b; }
header_union u_t { short_t s; long_t l; short_t other; }
struct headers_t { tag_t tag; u_t u; u_t v; }
struct metadata_t { u_t kept; }

#include "../../softswitch/features/include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.tag);
        transition select(hdr.tag.kind) { 1: short; 2: long; 3: twice; default: accept; }
    }
    state short { packet.extract(hdr.u.s); transition accept; }
    state long { packet.extract(hdr.u.l); transition accept; }
    state twice { packet.extract(hdr.u.s); packet.extract(hdr.u.l); transition accept; }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    table t {
        key = { hdr.u.s.isValid(): exact; hdr.u.l.isValid(): exact; hdr.u.isValid(): exact; }
        actions = { NoAction; }
    }
    apply {
        sm.egress_spec = 1;
        if (hdr.tag.flags == 1) {              // setValid of another
            hdr.u.other.setValid();
            hdr.u.other.a = 0xee;
        } else if (hdr.tag.flags == 2) {       // setInvalid
            hdr.u.s.setInvalid();
        } else if (hdr.tag.flags == 3) {       // a header, and one that is invalid
            short_t h;
            h.setValid();
            h.a = 0x77;
            hdr.u.s = h;
            h.setInvalid();
            hdr.v.l = { 0x1234, 0x56 };
            hdr.v.s = h;
        } else if (hdr.tag.flags == 4) {       // all of it, and back
            meta.kept = hdr.u;
            hdr.u.l = { 1, 2 };
            hdr.v = meta.kept;
        } else if (hdr.tag.flags == 5) {       // comparison
            hdr.v = hdr.u;
            if (hdr.v == hdr.u) { sm.egress_spec = 2; }
            hdr.v.s = { 9 };
            if (hdr.v != hdr.u) { hdr.tag.kind = 0xff; }
        } else if (hdr.tag.flags == 6) {
            hdr.u = {#};
        } else if (t.apply().hit) {
            sm.egress_spec = 3;
        }
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
