// The way up: the switch above in the job's tree, or from its root the fallback server.
//
// An evicted sum belongs to another job than the packet that evicted it: the header's job, which
// selects the uplink, and the counter row are then that other job's.
#ifndef INA_UPLINK_P4
#define INA_UPLINK_P4

#include "headers.p4"

control Uplink(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata, out bool known) {
    // `node`, `bitmap` and `fan_in` describe this switch to the one above: the node of that switch,
    // the bit of this one among its children, and the number of its children. `own_node` and
    // `own_fan_in` are this node's, for the parts of a sum: their bitmap names its children.
    action set_uplink(bit<9> port, bit<16> node, bit<32> bitmap, bit<8> fan_in,
                      bit<11> counter_row, bit<16> own_node, bit<8> own_fan_in) {
        standard_metadata.egress_spec = port;
        meta.counter_row = counter_row;
        bool as_child = meta.kind == KIND_GRADIENT && meta.transit == 0;
        bool as_part = meta.evicted == 1;
        hdr.ina.node = as_child ? node : (as_part ? own_node : hdr.ina.node);
        hdr.ina.bitmap = as_child ? bitmap : hdr.ina.bitmap;
        hdr.ina.fan_in = as_child ? fan_in : (as_part ? own_fan_in : hdr.ina.fan_in);
    }

    action forget() {
        meta.counter_row = meta.evicted == 1 ? 0 : meta.counter_row;
        mark_to_drop(standard_metadata);
    }

    table uplink {
        key = { hdr.ina.job: exact; }
        actions = { set_uplink; forget; }
        const default_action = forget;
        size = JOB_ROWS;
    }

    apply {
        known = uplink.apply().hit;
    }
}

#endif
