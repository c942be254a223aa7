// The slot of a shared packet: a region of the memory, and a place in it (location.p4).
//
// While a job moves to another region, an entry in `change` names the new one. The program chooses
// the first PSN of the new region: one window after the first contribution that meets the entry, as
// no rank can have sent that PSN yet. So all parts of a sum meet in one region, the job need not
// stop, and the controller need not know its progress.
#ifndef INA_ADDRESSING_P4
#define INA_ADDRESSING_P4

#include "headers.p4"
#include "location.p4"

control Addressing(in headers_t hdr, inout metadata_t meta) {
    // By counter row: the last change that has met a contribution, and its PSN.
    register<bit<64>>(JOB_ROWS) change_id;
    register<bit<32>>(JOB_ROWS) change_psn;
    // Contributions to a PSN at least a window after the change: their senders have all results from
    // the old region, so other jobs may have it.
    counter(JOB_ROWS, CounterType.packets) settled;

    Location() location;

    bit<64> id = 0;
    bit<32> next_offset = 0;
    bit<32> next_size = 0;
    bool has_settled = false;

    // `number` identifies the change: no earlier change of this counter row had it.
    action move(bit<64> number, bit<32> offset, bit<32> size) {
        id = number;
        next_offset = offset;
        next_size = size;
    }

    table change {
        key = { hdr.ina.job: exact; }
        actions = { move; NoAction; }
        const default_action = NoAction;
        size = JOB_ROWS;
    }

    // Take the new region if it is in force for the packet's PSN.
    action choose_region() {
        bit<32> row = (bit<32>)meta.counter_row;
        bit<64> known;
        bit<32> from;
        change_id.read(known, row);
        change_psn.read(from, row);
        // A resend may have a PSN that other ranks are a window ahead of already.
        bool fresh = hdr.ina.kind == KIND_GRADIENT && (hdr.ina.flags & FLAG_RESEND) == 0;
        bool begins = fresh && known != id;
        from = begins ? hdr.ina.psn + meta.window : from;
        known = begins ? id : known;
        change_id.write(row, known);
        change_psn.write(row, from);

        bit<32> ahead = hdr.ina.psn - from;         // serial number arithmetic, RFC 1982
        bool moved = known == id && ahead[31:31] == 0;
        meta.region_offset = moved ? next_offset : meta.region_offset;
        meta.region_size = moved ? next_size : meta.region_size;
        has_settled = fresh && moved && ahead >= meta.window;
    }

    apply {
        if (change.apply().hit) {
            choose_region();
            if (has_settled) {
                settled.count((bit<32>)meta.counter_row);
            }
        }
        if (meta.region_size != 0) {
            location.apply(hdr.ina, meta);
        }
    }
}

#endif
