// Clones of ingress and egress with and without a field list; several calls: the last one counts.
header h_t {
    bit<8>  op;
    bit<8>  value;
    bit<8>  kept;
    bit<8>  lost;
    bit<8>  type;
    bit<16> length;
}

header note_t {
    bit<8> op;
}

struct headers_t {
    h_t h;
    note_t note;                        // no parser makes it valid
}

struct metadata_t {
    note_t note;
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
    @field_list(1, 2)
    bit<16> both;
}

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        meta.kept = 0x11;
        meta.lost = 0x22;
        meta.both = 0x3300;
        standard_metadata.egress_spec = 1;
        if (hdr.h.op == 1) {
            clone(CloneType.I2E, 5);
        } else if (hdr.h.op == 2) {
            clone_preserving_field_list(CloneType.I2E, 5, 1);
        } else if (hdr.h.op == 3) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.h.value, 2);
            mark_to_drop(standard_metadata);
        } else if (hdr.h.op == 4) {
            clone_preserving_field_list(CloneType.I2E, 6, 1);
            clone_preserving_field_list(CloneType.I2E, 5, 2);
        }
        meta.kept = 0x12;               // the clone keeps what ingress ends with
        hdr.h.value = 0xff;             // but not what becomes of the headers
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.h.kept = meta.kept;
        hdr.h.lost = meta.lost | (bit<8>)(meta.both >> 8);
        hdr.h.type = (bit<8>)standard_metadata.instance_type;
        hdr.h.length = (bit<16>)standard_metadata.packet_length;
        if (hdr.h.op == 7 && standard_metadata.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 6, 1);
            meta.kept = 0x44;
        } else if (hdr.h.op == 8 && standard_metadata.instance_type == 0) {
            hdr.note.setValid();
            hdr.note.op = 0x5a;
            meta.note.setValid();
            meta.note.op = 0x77;
            clone(CloneType.E2E, 6);
            mark_to_drop(standard_metadata);
        } else if (hdr.h.op == 8 && hdr.note.isValid() && meta.note.isValid()) {
            hdr.h.lost = hdr.note.op;
            hdr.h.value = meta.note.op;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;

/* packets
session 5 9
session 6 8 7:1
packet 0 00 00 00 00 00 0000 aa
expect 1 00ff1233000008aa
packet 0 01 00 00 00 00 0000 aabb
expect 9 01000000010009aabb
expect 1 01ff1233000009aabb
packet 0 02 00 00 00 00 0000 aabbcc
expect 9 0200123301000aaabbcc
expect 1 02ff123300000aaabbcc
packet 0 03 05 00 00 00 0000 aa
expect 9 03050033010008aa
packet 0 03 99 00 00 00 0000 aa                 # no such session
expect nothing
packet 0 04 00 00 00 00 0000 aa
expect 9 04000033010008aa
expect 1 04ff1233000008aa
packet 0 07 00 00 00 00 0000 aa
expect 8 07ff4433020008aa
expect 7 07ff4433020008aa
expect 1 07ff1233000008aa
packet 0 08 00 00 00 00 0000 aa                 # clones, and drops
expect 8 08 77 00 5a 02 000a 5a aa
expect 7 08 77 00 5a 02 000a 5a aa
*/
