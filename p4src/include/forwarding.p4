// Ordinary traffic: ARP for the switch's own addresses, bridging by MAC, routing by IPv4 prefix.
#ifndef INA_FORWARDING_P4
#define INA_FORWARDING_P4

#include "headers.p4"

const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY   = 2;

control Forwarding(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) bridge_counter;
    direct_counter(CounterType.packets_and_bytes) route_counter;

    action drop() {
        mark_to_drop(standard_metadata);
    }

    action arp_reply(mac_t mac) {
        hdr.arp.op = ARP_REPLY;
        ipv4_t asked = hdr.arp.target_ip;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = mac;
        hdr.arp.sender_ip = asked;
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = mac;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action flood(bit<16> group) {
        standard_metadata.mcast_grp = group;
        meta.is_flood = 1;
    }

    action route(bit<9> port, mac_t src, mac_t dst) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    // The switch's own addresses, for which it answers ARP.
    table own_address {
        key = { hdr.arp.target_ip: exact; }
        actions = { arp_reply; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    // The switch's own MAC addresses: frames to them are routed, all other frames are bridged.
    table own_mac {
        key = { hdr.ethernet.dst: exact; }
        actions = { NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    table bridge {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; flood; drop; }
        default_action = drop;
        counters = bridge_counter;
        size = 1024;
    }

    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { route; drop; }
        const default_action = drop;
        counters = route_counter;
        size = 1024;
    }

    apply {
        if (hdr.arp.isValid() && hdr.arp.op == ARP_REQUEST && own_address.apply().hit) {
            return;
        }
        if (hdr.ipv4.isValid() && own_mac.apply().hit) {
            if (hdr.ipv4.ttl > 1) {
                routes.apply();
            } else {
                drop();
            }
        } else {
            bridge.apply();
        }
    }
}

#endif
