// Meters: each packet says which, and is told its colour.
header cell_t { bit<8> index; bit<8> colour; }
struct headers_t { cell_t h; }
struct metadata_t { }

#include "../../softswitch/features/include/one_header.p4"

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    meter(4, MeterType.packets) rate;
    apply {
        rate.execute_meter((bit<32>)hdr.h.index, hdr.h.colour);
        sm.egress_spec = 2;
    }
}
V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
