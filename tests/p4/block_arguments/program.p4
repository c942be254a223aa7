// Controls and parsers as arguments of constructors: made in place, and named ones that are shared.
header h_t { bit<8> a; bit<8> b; }
struct headers_t { h_t h; h_t g; }
struct metadata_t { }

#include "../../softswitch/features/include/blocks.p4"

parser Below(packet_in packet, inout headers_t hdr);
control Step(inout bit<8> v);

parser Inner(packet_in packet, inout headers_t hdr) {
    state start { packet.extract(hdr.g); transition accept; }
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm)
        (Below inner) {
    state start {
        packet.extract(hdr.h);
        inner.apply(packet, hdr);
        transition accept;
    }
}

control Adder(inout bit<8> v)(bit<8> by) {
    table t { actions = { NoAction; } default_action = NoAction(); }
    apply { v = v + by; t.apply(); }
}

control Twice(inout bit<8> v)(Step adder) {
    apply { adder.apply(v); adder.apply(v); }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm)(Step first) {
    Adder(10) ten;
    Twice(ten) second;
    apply {
        sm.egress_spec = 1;
        first.apply(hdr.h.a);
        second.apply(hdr.h.b);
        ten.apply(hdr.g.a);
    }
}

V1Switch(P(Inner()), NoChecksums(), I(Twice(Adder(1))), PlainEgress(), NoChecksums(), EmitAll()) main;
