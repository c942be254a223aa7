// Admits a packet to the slots only if it is whole and its sender was admitted to its job at the
// ingress port. An entry names all fields that identify a contribution, so one look-up checks
// them; it does not tell which field was wrong.
#ifndef INA_TNA_ADMISSION_P4
#define INA_TNA_ADMISSION_P4

#include "config.p4"

const bit<16> BYTES_BEHIND_IPV4 = UDP_BYTES + INA_BYTES;

// Two rows allow `valid` of up to LANES, a power of two: one for less than LANES, one for LANES.
#define FULL_SIZE(kind)                                                                         \
    (INA_VERSION, kind, LANES, IPV4_BYTES + BYTES_BEHIND_IPV4 + LANE_BYTES,                     \
     BYTES_BEHIND_IPV4 + LANE_BYTES, 0 &&& (VALID_INT32 - LANES)): NoAction();                  \
    (INA_VERSION, kind, LANES, IPV4_BYTES + BYTES_BEHIND_IPV4 + LANE_BYTES,                     \
     BYTES_BEHIND_IPV4 + LANE_BYTES, LANES &&& (VALID_INT32 - 1)): NoAction();
#define NO_LANES(kind)                                                                          \
    (INA_VERSION, kind, 0, IPV4_BYTES + BYTES_BEHIND_IPV4, BYTES_BEHIND_IPV4, _): NoAction();

control Shape(in tna_headers_t hdr, out bool fits) {
    table shape {
        key = {
            hdr.ina.version:    ternary;
            hdr.ina.kind:       ternary;
            hdr.ina.lanes:      ternary;
            hdr.ipv4.total_len: ternary;
            hdr.udp.length:     ternary;
            hdr.ina.valid:      ternary;
        }
        actions = { NoAction; }
        const default_action = NoAction;
        size = 10;
        const entries = {
            FULL_SIZE(KIND_GRADIENT)
            FULL_SIZE(KIND_PARTIAL)
            FULL_SIZE(KIND_RESULT)
            NO_LANES(KIND_RESULT)
            NO_LANES(KIND_STATUS)
            NO_LANES(KIND_REMINDER)
            NO_LANES(KIND_RELEASE)
        }
    }

    apply {
        fits = shape.apply().hit;
    }
}

#endif
