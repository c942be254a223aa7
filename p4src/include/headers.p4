// Packet headers and per-packet metadata.
#ifndef INA_HEADERS_P4
#define INA_HEADERS_P4

#include "config.p4"
#include "outcomes.p4"

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;

header ethernet_t {
    mac_t   dst;
    mac_t   src;
    bit<16> ether_type;
}

header arp_t {
    bit<16> hw_type;
    bit<16> proto_type;
    bit<8>  hw_len;
    bit<8>  proto_len;
    bit<16> op;
    mac_t   sender_mac;
    ipv4_t  sender_ip;
    mac_t   target_mac;
    ipv4_t  target_ip;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_len;
    bit<16> id;
    bit<3>  flags;
    bit<13> frag_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    ipv4_t  src;
    ipv4_t  dst;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// Kinds of INA packet.
const bit<4> KIND_GRADIENT = 1;   // worker to switch: a contribution
const bit<4> KIND_RESULT   = 2;   // switch to worker: the finished sum
const bit<4> KIND_STATUS   = 3;   // switch to worker: who has contributed so far (no lanes)

// Bits of ina_t.flags.
// 0x01, RESEND (the sender sends this PSN again), is for those who read captures
const bit<8> FLAG_QUERY    = 0x02;  // answer with KIND_STATUS if the sum is not complete
const bit<8> FLAG_OVERFLOW = 0x04;  // a lane left the int32 range; the values are not the sum
const bit<8> FLAG_DISAGREE = 0x08;  // contributions with different tags met in one slot

header ina_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  flags;
    bit<16> job;
    bit<32> psn;
    bit<32> bitmap;     // contributors: one bit per child of this switch
    bit<8>  fan_in;     // how many contributors complete the sum
    bit<8>  priority;
    bit<8>  exponent;   // maximum over the contributors
    bit<8>  reserved;
    bit<16> valid;      // lanes that carry elements, from lane 0
    bit<16> lanes;      // lanes in this packet: LANES, or 0 in KIND_STATUS
    bit<32> tag;        // digest of what all ranks must agree on (type, length, operation)
}

#if LANES == 32
#include "lanes_32_header.p4"
#elif LANES == 64
#include "lanes_64_header.p4"
#elif LANES == 256
#include "lanes_256_header.p4"
#else
#error "LANES must be 32, 64 or 256"
#endif

// What a packet does to the lanes of its slot.
const bit<2> LANES_NONE      = 0;
const bit<2> LANES_OVERWRITE = 1;   // first contribution: no clearing pass
const bit<2> LANES_ADD       = 2;
const bit<2> LANES_FETCH     = 3;   // read a finished sum

struct headers_t {
    ethernet_t ethernet;
    arp_t      arp;
    ipv4_h     ipv4;
    udp_t      udp;
    ina_t      ina;
    lanes_t    lanes;
}

struct metadata_t {
    // From the job's entries (admission.p4).
    bit<11> counter_row;
    bit<32> region_offset;
    bit<32> region_size;
    bit<32> generation;
    bit<8>  fan_in;
    bit<32> full_bitmap;
    bit<32> member_bitmap;
    bit<16> group;
    // The slot that this packet meets (aggregator.p4).
    bit<32> index;
    bit<2>  relation;       // to the PSN that the slot holds: RELATION_*
    bit<1>  seen;           // this contributor is already in the slot
    bit<1>  full;           // all contributors are in, this packet included
    bit<1>  query;          // the packet came with FLAG_QUERY
    bit<2>  lane_operation; // LANES_*
    bit<1>  overflow;       // adding left the int32 range
    // What becomes of the packet.
    outcome_t outcome;
    bit<1>  is_result;
    bit<1>  is_flood;
}

#endif
