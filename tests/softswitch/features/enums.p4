// enum, serialisable enum, error and typedef as values, keys and select labels.
#include <core.p4>  // for error

typedef bit<16> port_t;

enum bit<8> Kind {
    Request = 1,
    Reply = 2,
    Other = 0x80
}

enum Colour { Red, Green, Blue }

header h_t {
    Kind   kind;
    port_t port;
    bit<8> colour;
    Kind   answer;
}

struct headers_t {
    h_t h;
}

struct metadata_t {
    Colour colour;
    error  problem;
    bool   known;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        meta.problem = error.NoMatch;
        transition select(hdr.h.kind) {
            Kind.Request: request;
            Kind.Reply:   reply;
            default:      accept;
        }
    }
    state request {
        meta.colour = Colour.Green;
        transition accept;
    }
    state reply {
        meta.colour = Colour.Blue;
        meta.problem = error.NoError;
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action answer(Kind kind) {
        hdr.h.answer = kind;
    }
    table answers {
        key = { hdr.h.kind: exact; }
        actions = { answer; }
        const entries = {
            Kind.Request: answer(Kind.Reply);
            Kind.Reply:   answer(Kind.Request);
        }
        default_action = answer(Kind.Other);
    }
    apply {
        standard_metadata.egress_spec = 1;
        if (meta.colour == Colour.Red) {
            hdr.h.colour = 10;
        } else if (meta.colour == Colour.Green) {
            hdr.h.colour = 20;
        } else {
            hdr.h.colour = 30;
        }
        meta.known = hdr.h.kind == Kind.Request || hdr.h.kind != Kind.Other && meta.colour != Colour.Red;
        if (meta.known) {
            hdr.h.port = hdr.h.port + (port_t)(bit<16>)(bit<8>)hdr.h.kind;
        }
        if (meta.problem == error.NoError) {
            standard_metadata.egress_spec = 2;
        }
        answers.apply();
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 01 1000 00 00
expect 1 0110011402
packet 0 02 1000 00 00
expect 2 0210021e01
packet 0 80 1000 00 00
expect 1 8010000a80
packet 0 55 1000 00 00
expect 1 5510000a80
*/
