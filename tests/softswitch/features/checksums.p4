// verify_checksum and update_checksum on IPv4, under a condition.
header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> len;
    bit<16> id;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t { }

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

#define FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id, \
    hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control U(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5, FIELDS, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.checksum_error == 1) {
            standard_metadata.egress_spec = 2;
        } else {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        }
    }
}

V1Switch(P(), V(), C(), PlainEgress(), U(), EmitAll()) main;

/* packets
let eth = 020000000001 020000000002 0800
packet 0 $eth 4500 0073 0000 4000 4011 b861 c0a80001 c0a800c7 0011    # right
expect 1 020000000001020000000002080045000073000040003f11b961c0a80001c0a800c70011
packet 0 $eth 4500 0073 0000 4000 4011 b860 c0a80001 c0a800c7 0011    # wrong: sent to 2, renewed
expect 2 020000000001020000000002080045000073000040004011b861c0a80001c0a800c70011
packet 0 $eth 4600 0073 0000 4000 4011 b761 c0a80001 c0a800c7 0011    # ihl 6: not renewed
expect 1 020000000001020000000002080046000073000040003f11b761c0a80001c0a800c70011
packet 0 $eth 0000 0000 0000 0000 0000 ffff 00000000 00000000         # a sum of zero
expect 1 02000000000102000000000208000000000000000000ff00ffff0000000000000000
packet 0 $eth ffff ffff ffff ffff ffff 0000 ffffffff ffffffff
expect 1 0200000000010200000000020800fffffffffffffffffeff0000ffffffffffffffff
packet 0 020000000001 020000000002 0806 4500
expect 1 02000000000102000000000208064500
packet 0 $eth 4500 0073 0000 4000 4011 b861 c0a80001 c0a800           # too short
expect 1 020000000001020000000002080045000073000040004011b861c0a80001c0a800
*/
