// Extraction into next, last and lastIndex, indices by a field, push_front, pop_front, too many labels.
header op_t {
    bit<8> code;
    bit<8> index;
}

header label_t {
    bit<20> label;
    bit<3>  tc;
    bit<1>  bottom;
    bit<8>  ttl;
}

struct headers_t {
    op_t       op;
    label_t[3] labels;
}

struct metadata_t {
    bit<20> deepest;
    bit<32> count;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.op);
        transition select(hdr.op.code) {
            0xff: accept;
            default: label;
        }
    }
    state label {
        packet.extract(hdr.labels.next);
        meta.deepest = hdr.labels.last.label;
        meta.count = hdr.labels.lastIndex;
        transition select(hdr.labels.last.bottom) {
            0: label;
            1: accept;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error == error.StackOutOfBounds) {
            standard_metadata.egress_spec = 2;
        }
        if (hdr.op.code == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].label = meta.deepest;
            hdr.labels[0].tc = 0;
            hdr.labels[0].bottom = 0;
            hdr.labels[0].ttl = (bit<8>)meta.count;
        } else if (hdr.op.code == 2) {
            hdr.labels.pop_front(1);
        } else if (hdr.op.code == 3) {
            hdr.labels.push_front(2);
        } else if (hdr.op.code == 4) {
            hdr.labels.pop_front(2);
        } else if (hdr.op.code == 5) {
            hdr.labels[2] = hdr.labels[0];
            hdr.labels[1].setInvalid();
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
let a = 00001 0 0a
let b = 00002 2 0b
let c = 00003 4 0c
let z = 0000f 1 0f
packet 0 ff 00 dead
expect 1 ff00dead
packet 0 00 00 $z beef
expect 1 00000000f10fbeef
packet 0 00 00 $a $b $z beef
expect 1 00000000100a0000220b0000f10fbeef
packet 0 00 00 $a $b $c $z beef          # one too many: the fourth is payload
expect 2 00000000100a0000220b0000340c0000f10fbeef
packet 0 01 00 $z beef
expect 1 01000000f0000000f10fbeef
packet 0 01 00 $a $b $z beef             # pushes the last one out
expect 1 01000000f0020000100a0000220bbeef
packet 0 02 00 $a $z beef
expect 1 02000000f10fbeef
packet 0 03 00 $a $b $z beef
expect 1 03000000100abeef
packet 0 04 00 $a $b $z beef
expect 1 04000000f10fbeef
packet 0 04 00 $z beef
expect 1 0400beef
packet 0 05 00 $a $z beef
expect 1 05000000100a0000100abeef
packet 0 05 00 $a $b $z beef
expect 1 05000000100a0000100abeef
*/
