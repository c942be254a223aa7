// A varbit field: extracted by a length, kept, checksummed and emitted; too long, too short, no whole bytes.
header base_t {
    bit<8> bits;
    bit<8> op;
}

header options_t {
    bit<8>      kind;
    varbit<64>  data;
    bit<8>      end;
}

header sum_t {
    bit<16> sum;
}

struct headers_t {
    base_t    base;
    options_t options;
    options_t copied;
    sum_t     sum;
}

struct metadata_t { }

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.base);
        packet.extract(hdr.options, (bit<32>)hdr.base.bits);
        transition accept;
    }
}

control U(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.options.isValid(), { hdr.options.kind, hdr.options.data, hdr.options.end },
                        hdr.sum.sum, HashAlgorithm.csum16);
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.sum.setValid();
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error == error.PacketTooShort) {
            standard_metadata.egress_spec = 2;
        } else if (standard_metadata.parser_error == error.HeaderTooShort) {
            standard_metadata.egress_spec = 3;
        } else if (standard_metadata.parser_error == error.ParserInvalidArgument) {
            standard_metadata.egress_spec = 4;
        }
        if (hdr.base.op == 1) {
            hdr.copied = hdr.options;
            hdr.options.kind = 0x99;
        } else if (hdr.base.op == 2) {
            hdr.copied = hdr.options;
            hdr.options.setInvalid();
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), U(), EmitAll()) main;

/* packets
packet 0 18 00 11 aabbcc 22 ffff
expect 1 180011aabbcc221089ffff
packet 0 00 00 11 22 ffff
expect 1 00001122eeddffff
packet 0 40 00 11 0102030405060708 22 ffff
expect 1 400011010203040506070822dacdffff
packet 0 48 00 11 010203040506070809 22 ffff     # longer than the field
expect 3 480000001101020304050607080922ffff
packet 0 48 00 11 0102030405060708               # and too short besides
expect 2 48000000110102030405060708
packet 0 18 00 11 aabbcc                         # too short
expect 2 1800000011aabbcc
packet 0 05 00 11 aabbcc 22                      # no whole bytes
expect 4 0500000011aabbcc22
packet 0 18 01 11 aabbcc 22 ffff
expect 1 180199aabbcc2211aabbcc228888ffff
packet 0 18 02 11 aabbcc 22 ffff
expect 1 180211aabbcc220000ffff
*/
