// Parses and deparses Ethernet, IPv4, UDP and INA. Egress does not need lanes: they are its payload.
#ifndef INA_TNA_PARSER_P4
#define INA_TNA_PARSER_P4

#include "config.p4"

// The states behind Ethernet, the same at both ends of the traffic manager; only ingress has a
// checksum to verify, and lanes.
#define PARSE_TO_UDP                                                                \
    state parse_ethernet {                                                          \
        packet.extract(hdr.ethernet);                                               \
        transition select(hdr.ethernet.ether_type) {                                \
            TYPE_IPV4: parse_ipv4;                                                  \
            default:   accept;                                                      \
        }                                                                           \
    }                                                                               \
    state parse_udp {                                                               \
        packet.extract(hdr.udp);                                                    \
        transition select(hdr.udp.dst_port) {                                       \
            INA_UDP_PORT: parse_ina;                                                \
            default:      accept;                                                   \
        }                                                                           \
    }

parser IngressParser(packet_in packet, out tna_headers_t hdr, out tna_metadata_t meta,
                     out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta = {...};
        transition parse_ethernet;
    }

    PARSE_TO_UDP

    // Options and later fragments hide the UDP header: such packets are only forwarded.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        meta.bad_checksum = (bit<1>)ipv4_checksum.verify();     // 1: wrong, as published programs read it
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (5, 0, PROTO_UDP): parse_udp;
            default:           accept;
        }
    }

    state parse_ina {
        packet.extract(hdr.ina);
        transition select(hdr.ina.version, hdr.ina.lanes) {
            (INA_VERSION, LANES): parse_lanes;
            default:              accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control IngressDeparser(packet_out packet, inout tna_headers_t hdr, in tna_metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t intrinsic) {
    apply {
        packet.emit(hdr);
    }
}

struct egress_metadata_t {}

parser EgressParser(packet_in packet, out tna_headers_t hdr, out egress_metadata_t meta,
                    out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        transition parse_ethernet;
    }

    PARSE_TO_UDP

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (5, 0, PROTO_UDP): parse_udp;
            default:           accept;
        }
    }

    state parse_ina {
        packet.extract(hdr.ina);
        transition accept;
    }
}

control EgressDeparser(packet_out packet, inout tna_headers_t hdr, in egress_metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t intrinsic) {
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ina.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update({
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len,
                hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl,
                hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst });
        }
        packet.emit(hdr);
    }
}

#endif
