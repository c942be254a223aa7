// Egress: addresses each copy of an INA packet to its receiver, and marks long queues.
#ifndef INA_TNA_EGRESS_P4
#define INA_TNA_EGRESS_P4

#include "parser.p4"

const bit<2> ECN_CONGESTED = 3;     // RFC 3168
const bit<8> INA_TTL = 64;

control Egress(inout tna_headers_t hdr, inout egress_metadata_t meta,
               in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t for_port) {
    action address(mac_t own_mac, ipv4_t own_ip, mac_t mac, ipv4_t ip, bit<16> udp_port) {
        hdr.ethernet.src = own_mac;
        hdr.ethernet.dst = mac;
        hdr.ipv4.src = own_ip;
        hdr.ipv4.dst = ip;
        hdr.ipv4.ttl = INA_TTL;
        hdr.udp.src_port = INA_UDP_PORT;
        hdr.udp.dst_port = udp_port;
        hdr.udp.checksum = 0;       // the payload is new (zero is "none", RFC 768)
    }

    action to_child(mac_t own_mac, ipv4_t own_ip, mac_t mac, ipv4_t ip, bit<16> udp_port) {
        address(own_mac, own_ip, mac, ip, udp_port);
    }

    // A result is the sum of the whole job, whichever node kept it: a repeated result answers a packet
    // with another node and bitmap.
    action result_to_child(mac_t own_mac, ipv4_t own_ip, mac_t mac, ipv4_t ip, bit<16> udp_port,
                           bit<32> result_bitmap, bit<8> result_fan_in) {
        address(own_mac, own_ip, mac, ip, udp_port);
        hdr.ina.node = ROOT_NODE;
        hdr.ina.bitmap = result_bitmap;
        hdr.ina.fan_in = result_fan_in;
    }

    // Parts of a sum, and answers to reminders, name their node.
    action to_parent(mac_t own_mac, ipv4_t own_ip, mac_t mac, ipv4_t ip, bit<16> udp_port) {
        address(own_mac, own_ip, mac, ip, udp_port);
    }

    // A whole sum is this switch's contribution to the switch above.
    action sum_to_parent(mac_t own_mac, ipv4_t own_ip, mac_t mac, ipv4_t ip, bit<16> udp_port,
                         bit<16> node, bit<32> bitmap, bit<8> fan_in) {
        address(own_mac, own_ip, mac, ip, udp_port);
        hdr.ina.node = node;
        hdr.ina.bitmap = bitmap;
        hdr.ina.fan_in = fan_in;
    }

    // To the port that leads back into this pipeline (shared.p4). The lanes, which egress has not
    // parsed, follow the datagram.
    action to_self() {
        hdr.ina.kind = KIND_RELEASE;
        hdr.ina.lanes = 0;
        hdr.udp.length = UDP_BYTES + INA_BYTES;
        hdr.ipv4.total_len = IPV4_BYTES + UDP_BYTES + INA_BYTES;
    }

    action drop() {
        for_deparser.drop_ctl = 1;
    }

    // Each port leads to one child, or to the parent.
    table receiver {
        key = {
            hdr.ina.job:           exact;
            intrinsic.egress_port: exact;
            hdr.ina.kind:          exact;
        }
        actions = { to_child; result_to_child; to_parent; sum_to_parent; to_self; drop; }
        const default_action = drop;
        size = MEMBERS;
    }

    // On the way up a mark goes into the sum; results are marked in their IP header only
    // (p4src/include/marking.p4). The depth is in cells of 80 bytes: ATP marks from 1000 on.
    action mark_sum() {
        hdr.ina.flags = hdr.ina.flags | FLAG_ECN;
    }

    action mark_result() {
        hdr.ipv4.ecn = ECN_CONGESTED;
    }

    table marking {
        key = {
            intrinsic.deq_qdepth[18:10]: ternary @name("depth");
            hdr.ina.kind:                ternary @name("kind");
        }
        actions = { mark_sum; mark_result; NoAction; }
        const default_action = NoAction;
        size = 4;
        const entries = {
            (0, _):             NoAction();
            (_, KIND_GRADIENT): mark_sum();
            (_, KIND_PARTIAL):  mark_sum();
            (_, _):             mark_result();
        }
    }

    apply {
        if (hdr.ina.isValid()) {
            marking.apply();
            receiver.apply();
        }
    }
}

#endif
