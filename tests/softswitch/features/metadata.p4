// What the switch tells a program in standard_metadata, in ingress and in egress.
header h_t {
    bit<8>  op;
    bit<16> in_port;
    bit<16> out_port;
    bit<32> in_length;
    bit<32> out_length;
    bit<48> in_time;
    bit<8>  in_type;
    bit<8>  out_spec;
    bit<32> enq_time;
    bit<32> enq_depth;
    bit<32> waited;
    bit<32> deq_depth;
    bit<48> out_time;
}

header extra_t {
    bit<24> x;
}

struct headers_t {
    h_t     h;
    extra_t extra;
}

struct metadata_t { }

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        hdr.h.in_port = (bit<16>)standard_metadata.ingress_port;
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.h.in_length = standard_metadata.packet_length;
        hdr.h.in_time = standard_metadata.ingress_global_timestamp;
        hdr.h.in_type = (bit<8>)standard_metadata.instance_type;
        standard_metadata.egress_spec = 300;
        if (hdr.h.op == 1) {
            hdr.extra.setValid();       // adds 3 bytes to the packet
        } else if (hdr.h.op == 2) {
            hdr.h.setInvalid();
            hdr.extra.setValid();
            hdr.extra.x = 1;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.h.out_port = (bit<16>)standard_metadata.egress_port;
        hdr.h.out_spec = (bit<8>)standard_metadata.egress_spec;
        hdr.h.out_length = standard_metadata.packet_length;
        hdr.h.enq_time = standard_metadata.enq_timestamp;
        hdr.h.enq_depth = (bit<32>)standard_metadata.enq_qdepth;
        hdr.h.waited = standard_metadata.deq_timedelta;
        hdr.h.deq_depth = (bit<32>)standard_metadata.deq_qdepth;
        hdr.h.out_time = standard_metadata.egress_global_timestamp;
        if (hdr.h.op == 2) {
            hdr.extra.x = (bit<24>)standard_metadata.packet_length;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;

/* packets
packet 7 00 000000000000000000000000000000000000000000000000000000000000000000000000000000000000 aabb
expect 300 000007012c0000002d0000002d0000000003e80000000003f200000005000000280000000600000000041aaabb
packet 511 01 000000000000000000000000000000000000000000000000000000000000000000000000000000000000 aabb
expect 300 0101ff012c0000002d000000300000000007d00000000007da000000050000002800000006000000000802000000aabb
packet 0 02 000000000000000000000000000000000000000000000000000000000000000000000000000000000000 aabb
expect 300 000005aabb
*/
