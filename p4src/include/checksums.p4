// The IPv4 header checksum, checked on the way in and updated on the way out.
// Packets whose headers have options are forwarded unchanged.
#ifndef INA_CHECKSUMS_P4
#define INA_CHECKSUMS_P4

#include "headers.p4"

#define IPV4_CHECKSUM_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, \
    hdr.ipv4.total_len, hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.frag_offset, \
    hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
                        IPV4_CHECKSUM_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control ComputeChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
                        IPV4_CHECKSUM_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#endif
