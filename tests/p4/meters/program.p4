// Meters: each packet says which, and is told its colour.
#include <core.p4>
#include <v1model.p4>
header cell_t { bit<8> index; bit<8> colour; }
struct headers_t { cell_t cell; }
struct metadata_t { }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.cell); transition accept; }
}
control None(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    meter(4, MeterType.packets) rate;
    apply {
        rate.execute_meter((bit<32>)hdr.cell.index, hdr.cell.colour);
        sm.egress_spec = 2;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), None(), I(), E(), None(), D()) main;
