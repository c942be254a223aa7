// Parses and deparses Ethernet, ARP, IPv4, UDP and INA.
#ifndef INA_PARSER_P4
#define INA_PARSER_P4

#include "headers.p4"

parser InaParser(packet_in packet, out headers_t hdr,
                 inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            TYPE_IPV4: parse_ipv4;
            TYPE_ARP:  parse_arp;
            default:   accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    // Options and later fragments hide the UDP header: such packets are only forwarded.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (5, 0, PROTO_UDP): parse_udp;
            default:           accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            INA_UDP_PORT: parse_ina;
            default:      accept;
        }
    }

    // Lanes are extracted only from packets of our version and size; ingress refuses others,
    // with a reason.
    state parse_ina {
        packet.extract(hdr.ina);
        transition select(hdr.ina.version, hdr.ina.lanes, hdr.udp.length) {
            (INA_VERSION, LANES, UDP_BYTES + INA_BYTES + LANE_BYTES): parse_lanes;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control InaDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.ina);
        packet.emit(hdr.lanes);
    }
}

#endif
