// Packet headers and per-packet metadata.
#ifndef INA_HEADERS_P4
#define INA_HEADERS_P4

#include "config.p4"
#include "each_lane.p4"
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

// Kinds of INA packet. Up is towards the root of the job's tree and its fallback server,
// down towards the workers.
const bit<4> KIND_GRADIENT = 1;   // up: a contribution, of a worker or of a switch's whole subtree
const bit<4> KIND_RESULT   = 2;   // down: the finished sum; up: a copy requested by a reminder
const bit<4> KIND_STATUS   = 3;   // down: the contributors so far (no lanes)
const bit<4> KIND_PARTIAL  = 4;   // up, to the fallback server: part of a sum, not for a slot
const bit<4> KIND_REMINDER = 5;   // down, from the fallback server: send up your part of the sum (no lanes)

// Bits of ina_t.flags.
const bit<8> FLAG_RESEND    = 0x01; // the sender sends this PSN again
const bit<8> FLAG_QUERY     = 0x02; // answer with KIND_STATUS if the sum is not complete
const bit<8> FLAG_OVERFLOW  = 0x04; // a lane left the int32 range; the values are not the sum
const bit<8> FLAG_DISAGREE  = 0x08; // contributions had different tags
const bit<8> FLAG_COLLISION = 0x10; // another sum wanted, or had, the same slot
const bit<8> FLAG_ECN       = 0x20; // a contribution met a long queue
@noWarn("unused")   // only shared programs use it
const bit<8> FLAG_BYPASS    = 0x40; // claim no slot for this packet; in a result: a contribution had this flag
const bit<8> FLAG_RAW       = 0x80; // lanes are raw values that only the fallback server can add

// A contribution's flags that also hold for the sum; for a stored result, RAW too.
const bit<8> FLAGS_OF_SUM    = FLAG_OVERFLOW | FLAG_DISAGREE | FLAG_COLLISION | FLAG_ECN;
const bit<8> FLAGS_OF_RESULT = FLAGS_OF_SUM | FLAG_RAW;
// The flags that are requests.
const bit<8> FLAGS_ASKING    = FLAG_RESEND | FLAG_QUERY | FLAG_BYPASS | FLAG_RAW;

// Bit of ina_t.valid in raw packets: the lanes are int32, else float32.
const bit<16> VALID_INT32 = 0x8000;

// In ina_t.target: all ranks except the one in the other bits take the sum. So 0xffff means every
// rank, as no rank has that number.
const bit<16> TARGET_BUT = 0x8000;

// The root of every job's tree: the node of its results.
const bit<16> ROOT_NODE = 0;

header ina_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  flags;
    bit<16> job;
    bit<32> psn;
    bit<32> bitmap;     // contributors: one bit per child of `node`
    bit<8>  fan_in;     // number of children of `node`
    bit<8>  priority;
    bit<8>  exponent;   // maximum over the contributors
    bit<8>  epoch;      // low byte of the job's generation
    bit<16> valid;      // lanes of this PSN that carry elements, from lane 0; in raw packets, the type too
    bit<16> lanes;      // lanes in this packet: LANES or 0
    bit<32> tag;        // digest of type, length and operation, on which all ranks must agree
    bit<16> node;       // node of the job's tree whose children `bitmap` names; 0 is the root
    bit<16> target;     // rank that takes the sum; with TARGET_BUT: all ranks except this one
}

#define LANE_FIELD(i) bit<32> v##i;

header lanes_t {
    EVERY_LANE(LANE_FIELD)
}

// A packet's operation on the lanes of its slot.
const bit<3> LANES_NONE      = 0;
const bit<3> LANES_OVERWRITE = 1;   // first contribution: no clearing pass
const bit<3> LANES_ADD       = 2;
const bit<3> LANES_FETCH     = 3;   // read the sum
const bit<3> LANES_EXCHANGE  = 4;   // store the packet's lanes, take the slot's

// Where a packet goes.
const bit<2> TO_NOBODY = 0;
const bit<2> TO_SENDER = 1;
const bit<2> TO_GROUP  = 2;     // down, to all children
const bit<2> TO_UPLINK = 3;     // to the switch above; from the root, to the fallback server

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
    bit<16> group;
    bit<16> node;           // this switch's node of the tree
    bit<32> result_bitmap;  // full bitmap of the root
    bit<1>  root;
    bit<1>  transit;        // no memory here: only forward packets
    bit<1>  preempt;
    bit<8>  ageing;         // a slot's loss of priority per packet that could not take it
    bit<32> window;         // PSNs in flight; older ones are finished
    bit<32> max_age_us;
    bit<32> member_bitmap;  // the children behind the port that the packet came from
    bit<16> first_node;     // the first node of the tree behind that port,
    bit<16> node_count;     // and the number of nodes, which are consecutive
    bit<1>  from_above;     // the packet came from the switch above, or from the fallback server
    // The packet's slot (set by the aggregators).
    bit<32> index;
    bit<3>  lane_operation; // LANES_*
    bit<1>  bare;           // the slot's lanes hold no values (lane_work.p4)
    bit<1>  leaves_with_lanes;
    bit<1>  overflow;       // the sum left the int32 range
    // The packet's outcome.
    outcome_t outcome;
    bit<2>  way;            // TO_*
    bit<4>  kind;           // KIND_* on leaving
    bit<1>  evicted;        // the packet leaves with an evicted sum
    bit<1>  is_addressed;   // egress looks up each copy's receiver
    bit<16> first_rank;     // the first rank behind that receiver,
    bit<16> rank_count;     // and the number of ranks, which are consecutive
    bit<1>  is_flood;
}

#endif
