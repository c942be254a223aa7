// Longest prefix wins, whatever the order of insertion; /0 and /32; lpm beside exact.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<32> addr;
    bit<8>  vrf;
    bit<8>  result;
}

struct headers_t {
    key_t k;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.k);
        transition accept;
    }
}

#include "../include/blocks.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action to(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action result(bit<8> value) {
        hdr.k.result = value;
    }
    table routes {
        key = { hdr.k.addr: lpm; }
        actions = { to; }
        default_action = to(100);
    }
    table vrf_routes {
        key = { hdr.k.vrf: exact; hdr.k.addr: lpm; }
        actions = { result; NoAction; }
        default_action = NoAction();
    }
    apply {
        routes.apply();
        vrf_routes.apply();
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;
