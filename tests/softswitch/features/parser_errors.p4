// Every parser error that the core library knows, and what ingress sees of a half-parsed packet.
error { BadVersion, Forbidden }

header first_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  value;
}

header second_t {
    bit<32> a;
}

header report_t {
    bit<8> code;
    bit<8> valid;
}

struct headers_t {
    report_t  report;
    first_t   first;
    second_t[1] second;
}

struct metadata_t {
    bit<8> reached;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.first);
        meta.reached = 1;
        verify(hdr.first.version == 1, error.BadVersion);
        meta.reached = 2;
        transition select(hdr.first.kind) {
            0: accept;
            1: reject;
            2: again;
            3: again;
            4: check;
            5: odd;
        }
    }
    state again {
        packet.extract(hdr.second.next);
        meta.reached = 3;
        transition select(hdr.first.kind) {
            3: again;
            default: accept;
        }
    }
    state check {
        verify(hdr.first.value != 0, error.Forbidden);
        meta.reached = 4;
        transition accept;
    }
    state odd {
        packet.advance((bit<32>)hdr.first.value);
        meta.reached = 5;
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.report.setValid();
        if (standard_metadata.parser_error == error.NoError) {
            hdr.report.code = 0;
        } else if (standard_metadata.parser_error == error.PacketTooShort) {
            hdr.report.code = 1;
        } else if (standard_metadata.parser_error == error.NoMatch) {
            hdr.report.code = 2;
        } else if (standard_metadata.parser_error == error.StackOutOfBounds) {
            hdr.report.code = 3;
        } else if (standard_metadata.parser_error == error.BadVersion) {
            hdr.report.code = 4;
        } else if (standard_metadata.parser_error == error.Forbidden) {
            hdr.report.code = 5;
        } else if (standard_metadata.parser_error == error.ParserInvalidArgument) {
            hdr.report.code = 6;
        } else {
            hdr.report.code = 0xff;
        }
        hdr.report.valid = meta.reached;
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 10 00 aabbccdd eeff
expect 1 00021000aabbccddeeff
packet 0 10                          # too short for the first header
expect 1 010010
packet 0 20 00 aabbccdd              # BadVersion
expect 1 04012000aabbccdd
packet 0 12 00 aabbccdd eeff
expect 1 00031200aabbccddeeff
packet 0 12 00 aabbcc                # too short for the second
expect 1 01021200aabbcc
packet 0 13 00 aabbccdd eeff0011     # the stack holds one
expect 1 03031300aabbccddeeff0011
packet 0 14 01 aa
expect 1 00041401aa
packet 0 14 00 aa                    # Forbidden
expect 1 05021400aa
packet 0 15 08 aa bb
expect 1 00051508bb
packet 0 15 03 aa bb                 # no whole number of bytes
expect 1 06021503aabb
packet 0 15 18 aa bb                 # advance beyond the end
expect 1 01021518aabb
packet 0 16 00 aa                    # NoMatch
expect 1 02021600aa
*/
