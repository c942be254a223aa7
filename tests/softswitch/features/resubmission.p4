// Resubmit keeps the original frame and a field list; recirculate sends the result round.
header h_t {
    bit<8>  op;
    bit<8>  turns;
    bit<8>  type;
    bit<8>  kept;
    bit<8>  lost;
    bit<16> length;
}

header extra_t {
    bit<32> mark;
}

struct headers_t {
    h_t     h;
    extra_t extra;
}

struct metadata_t {
    @field_list(1)
    bit<8> turns;
    bit<8> lost;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        meta.lost = meta.lost + 1;
        packet.extract(hdr.h);
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.h.type = (bit<8>)standard_metadata.instance_type;
        hdr.h.turns = hdr.h.turns + 1;
        hdr.h.kept = meta.turns;
        hdr.h.lost = meta.lost;
        hdr.h.length = (bit<16>)standard_metadata.packet_length;
        meta.turns = meta.turns + 1;
        meta.lost = 0x77;
        if (hdr.h.op == 1 && meta.turns < 3) {
            resubmit_preserving_field_list(1);
        } else if (hdr.h.op == 2 && standard_metadata.instance_type == 0) {
            resubmit_preserving_field_list(9);
            mark_to_drop(standard_metadata);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.h.op == 3 && hdr.h.turns < 3) {
            hdr.extra.setValid();
            hdr.extra.mark = 0xcafe0000 | (bit<32>)hdr.h.turns;
            recirculate_preserving_field_list(1);
        } else if (hdr.h.op == 4) {
            recirculate_preserving_field_list(1);
            mark_to_drop(standard_metadata);
        }
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;

/* packets
packet 3 00 00 00 00 00 0000 aa
expect 1 00010000010008aa
packet 3 01 00 00 00 00 0000 aa
expect 1 01010602010008aa
packet 3 02 00 00 00 00 0000 aa
expect 1 02010600010008aa
packet 3 03 00 00 00 00 0000 aa
expect 1 03030402010010cafe0002cafe0001aa
packet 3 04 00 00 00 00 0000 aa
expect nothing
*/
