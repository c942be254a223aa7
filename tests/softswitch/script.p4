// A program for engine tests: each frame says what is to be done with it.
//
// A frame that orders nothing is bridged: to the port that its destination address ends in, or, with a group
// address, to all others in group 1.
#include <core.p4>
#include <v1model.p4>

const bit<8> MULTICAST = 0x4d;      // 'M': to the group
const bit<8> DROP = 0x44;           // 'D'
const bit<8> RESUBMIT = 0x52;       // 'R': as often as it says, then to the port
const bit<8> UNICAST = 0x55;        // 'U': to the port
const bit<8> VANISH = 0x58;         // 'X': to the port, where egress drops it
const bit<8> RECIRCULATE = 0x5a;    // 'Z': from the port, as often as it says
const bit<8> IN_INGRESS = 0x69;     // 'i'
const bit<8> IN_EGRESS = 0x65;      // 'e'

header order_t {
    bit<8>  what;
    bit<8>  times;                  // and the priority of its queue
    bit<16> to;                     // a port or a group
    bit<16> session;                // for a clone; 0: none
    bit<8>  where;                  // it is cloned
    // written by egress: what the traffic manager said of this copy
    bit<8>  turns;
    bit<32> instance_type;
    bit<32> rid;
    bit<32> enq_qdepth;
    bit<32> deq_qdepth;
    bit<32> waited;
    bit<32> now;
}

struct headers_t { order_t order; }

struct metadata_t {
    @field_list(1) bit<8> turns;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}

control NoChecksums(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (!hdr.order.isValid()) {
            mark_to_drop(sm);
            return;
        }
        sm.priority = (bit<3>)hdr.order.times;
        if (hdr.order.session != 0 && hdr.order.where == IN_INGRESS && sm.instance_type == 0) {
            clone(CloneType.I2E, (bit<32>)hdr.order.session);
        }
        sm.egress_spec = (bit<9>)hdr.order.to;
        switch (hdr.order.what) {
            MULTICAST: { sm.mcast_grp = hdr.order.to; }
            DROP: { mark_to_drop(sm); }
            RESUBMIT: {
                if (meta.turns < hdr.order.times) {
                    meta.turns = meta.turns + 1;
                    resubmit_preserving_field_list(1);
                }
            }
            UNICAST: VANISH: RECIRCULATE: { }
            default: {
                sm.egress_spec = (bit<9>)hdr.order.session[7:0];
                if (hdr.order.what[0:0] == 1) { sm.mcast_grp = 1; }
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        switch (hdr.order.what) {
            MULTICAST: DROP: RESUBMIT: UNICAST: VANISH: RECIRCULATE: { }
            default: {
                if (hdr.order.what[0:0] == 1 && sm.ingress_port == sm.egress_port) { mark_to_drop(sm); }
                return;
            }
        }
        if (hdr.order.session != 0 && hdr.order.where == IN_EGRESS && sm.instance_type != 2) {
            clone(CloneType.E2E, (bit<32>)hdr.order.session);
        }
        if (hdr.order.what == RECIRCULATE && meta.turns < hdr.order.times) {
            meta.turns = meta.turns + 1;
            recirculate_preserving_field_list(1);
        }
        if (hdr.order.what == VANISH) { mark_to_drop(sm); }
        hdr.order.turns = meta.turns;
        hdr.order.instance_type = sm.instance_type;
        hdr.order.rid = (bit<32>)sm.egress_rid;
        hdr.order.enq_qdepth = (bit<32>)sm.enq_qdepth;
        hdr.order.deq_qdepth = (bit<32>)sm.deq_qdepth;
        hdr.order.waited = sm.deq_timedelta;
        hdr.order.now = (bit<32>)sm.egress_global_timestamp;
    }
}

control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), NoChecksums(), I(), E(), NoChecksums(), D()) main;
