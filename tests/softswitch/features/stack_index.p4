// Elements of a stack by a field; an index out of range reads zero and writes nothing.
header op_t {
    bit<8> from;
    bit<8> to;
}

header cell_t {
    bit<8> v;
}

struct headers_t {
    op_t      op;
    cell_t[4] cells;
}

struct metadata_t { }

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.op);
        packet.extract(hdr.cells.next);
        packet.extract(hdr.cells.next);
        packet.extract(hdr.cells.next);
        packet.extract(hdr.cells.next);
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.cells[hdr.op.to].v = hdr.cells[hdr.op.from].v + 1;
        standard_metadata.egress_spec = 1;
        if (!hdr.cells[hdr.op.to].isValid()) {
            standard_metadata.egress_spec = 2;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 00 01 10 20 30 40
expect 1 000110113040
packet 0 03 00 10 20 30 40
expect 1 030041203040
packet 0 02 02 10 20 30 40
expect 1 020210203140
packet 0 04 00 10 20 30 40
expect 1 040001203040
packet 0 00 04 10 20 30 40
expect 2 000410203040
packet 0 ff ff 10 20 30 40
expect 2 ffff10203040
*/
