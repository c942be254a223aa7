// Varbits in structs and variables, assigned and compared, alone and in their headers.
header h_t { bit<8> op; bit<8> length; }
header v_t { varbit<32> v; }
struct headers_t { h_t h; v_t a; v_t b; }
struct metadata_t { varbit<32> kept; bit<8> length; }

#include "../../softswitch/features/include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.a, (bit<32>) hdr.h.length * 8);
        packet.extract(hdr.b, 16);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        varbit<32> mine;
        sm.egress_spec = 1;
        if (hdr.a.v == hdr.b.v) { sm.egress_spec = 2; }
        if (hdr.a == hdr.b) { sm.egress_spec = sm.egress_spec + 4; }
        if (hdr.a.v == mine) { sm.egress_spec = 9; }
        if (hdr.h.op == 1) {
            meta.kept = hdr.a.v;
            hdr.a.v = hdr.b.v;
            mine = meta.kept;
            hdr.b.v = mine;
        }
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
