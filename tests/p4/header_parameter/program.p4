// One header as the headers of the pipeline.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> b; }
struct metadata_t { }

parser P(packet_in packet, out h_t h, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(h); transition accept; }
}

control None(inout h_t h, inout metadata_t meta) { apply { } }

control I(inout h_t h, inout metadata_t meta, inout standard_metadata_t sm) {
    table t {
        key = { h.a: exact; }
        actions = { NoAction; }
        const entries = { 1: NoAction(); }
    }
    apply {
        sm.egress_spec = 1;
        if (t.apply().hit) { h.setInvalid(); } else { h.b = h.a; }
    }
}

control E(inout h_t h, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in h_t h) { apply { packet.emit(h); } }

V1Switch(P(), None(), I(), E(), None(), D()) main;
