/* The window and retransmission core of one worker. How it works is told in hostlib/core/state.py, which also
 * mirrors `struct ina_core`; hostlib/core/numpy_kernel.py does the same in Python.
 *
 * Nothing here allocates, blocks or reads a clock; times are nanoseconds of the caller's clock.
 */
#ifndef INA_CORE_H
#define INA_CORE_H

#include <stddef.h>
#include <stdint.h>

#define INA_NEVER INT64_MAX

/* State of a chain: the PSNs that are equal modulo the window follow one another, one at a time. */
enum {
    CHAIN_READY = 0x01,                 /* in the ready ring */
    CHAIN_FLIGHT = 0x02,                /* sent, no result yet */
    CHAIN_RESENT = 0x04,                /* sent more than once: its round trip time is ambiguous */
    CHAIN_COUNTED = 0x08,               /* a status showed our contribution in the slot */
    CHAIN_QUEUED = 0x10,                /* in the resend ring */
    CHAIN_QUERY = 0x20,                 /* the resend is to ask for a status */
    CHAIN_RAW = 0x40,                   /* the sum overflowed: unscaled values are sent, to the fallback server */
    CHAIN_ASKED = 0x80,                 /* the last resend asked for a status */
    CHAIN_LOST = 0x100,                 /* it got none: the next resend tells all ranks, with ECN */
    CHAIN_PROBE = 0x200,                /* the resend is a probe */
    CHAIN_PROBED = 0x400                /* a probe was sent: whose answer the result is cannot be told */
};

enum { KEPT_THERE = 0x01, KEPT_QUEUED = 0x02 };

/* What a result brought, kept until its round counts it; the byte above is what it told of waiting. */
enum { MARK_ECN = 0x01, MARK_COLLISION = 0x02, MARK_LATE = 0x04, MARK_WAITS = 0x08 };

enum {
    COUNT_SENT, COUNT_RESENT, COUNT_RESULTS, COUNT_STATUSES, COUNT_STALE, COUNT_BAD_LENGTH, COUNT_FOREIGN,
    COUNT_BAD_VERSION, COUNT_BAD_KIND, COUNT_BAD_LANES, COUNT_WRONG_JOB, COUNT_WRONG_TAG, COUNT_BAD_BITMAP,
    COUNT_WRONG_EPOCH, COUNT_REMINDERS, COUNT_ANSWERS, COUNT_REPAIRS, COUNT_BYPASSED, COUNT_MARKED, COUNT_COLLIDED,
    COUNTERS
};

struct ina_core {
    /* the job */
    uint8_t header[72];                 /* what every packet begins with: prefix and INA header */
    uint32_t prefix;                    /* bytes before the INA header: INA_PREFIX_BYTES or 0 */
    uint32_t packet_bytes;
    uint32_t lanes;
    uint32_t window;
    uint32_t most;                      /* packets that a congestion control may ever allow in flight */
    uint32_t job;
    uint32_t epoch;
    uint32_t ranks;                     /* terms of every sum */
    uint32_t fan_in;                    /* children of the own switch; so the bitmap that follows */
    uint32_t own_bitmap;
    uint32_t result_bitmap;             /* that of all results, of the root */
    uint32_t path_length;
    uint32_t fallback;                  /* there is a fallback server */
    uint32_t fixed;                     /* float32 is scaled by 2^scale_bits, not by exponents */
    int32_t scale_bits;
    uint32_t salted;                    /* ATP: a packet's priority is the salt of its chain */
    uint64_t psn_limit;                 /* PSNs are counted modulo this multiple of the window */
    const uint32_t *path_nodes;         /* from the own switch to the root, and our bit there */
    const uint32_t *path_bits;
    /* per chain */
    int64_t *index;                     /* packet of the collective that is next or in flight */
    int64_t *sent_at;
    uint16_t *status;
    uint8_t *exponent;                  /* of data packets, by number modulo twice the window */
    uint32_t *ready_ring;
    uint32_t *resend_ring;
    uint16_t *marks;                    /* MARK_* of the result that came last and is not in a round yet */
    /* per chain, with a fallback server only: the answer to a reminder of the packet finished last */
    uint8_t *answers;
    uint8_t *kept;
    uint32_t *answer_ring;
    int64_t *wanted;                    /* PSN that a reminder asked for before we sent it; -1: none */
    uint8_t *salts;                     /* per chain, where salted: that of its last result, one more if that collided */
    /* the collective */
    const uint8_t *input;
    uint8_t *output;
    int64_t length;
    int64_t data_packets;
    int64_t lookahead;
    int64_t total;
    uint64_t base;                      /* PSN of packet 0 */
    uint32_t tag;
    uint32_t is_float;
    uint32_t average;
    uint32_t is_target;                 /* results bring us values */
    /* progress */
    uint32_t ready_head;
    uint32_t ready_count;
    uint32_t resend_head;
    uint32_t resend_count;
    uint32_t answer_head;
    uint32_t answer_count;
    uint32_t status_bitmap;             /* contributors to the packet that the last status was about ... */
    uint32_t status_node;               /* ... at this node */
    int64_t completed;
    int64_t in_flight;
    int64_t oldest;                     /* no packet before this one lacks its result */
    int64_t frontier;                   /* no packet from this one on has been sent */
    int64_t limit;                      /* congestion window, packets */
    int64_t claims;                     /* of `most` new packets on end, how many may claim a slot */
    int64_t claims_next;                /* the same for packets from `change_at` on */
    int64_t change_at;
    uint32_t waits;                     /* how long we wait for others, told where no exponent is announced */
    uint32_t waits_next;                /* the same for packets from `change_at` on */
    int64_t echo;                       /* results that met a long queue, still to be told to all ranks */
    int64_t progress_at;
    int64_t first_at;                   /* the first result of the collective; before it, when that began */
    int64_t status_at;                  /* -1: none in this collective */
    int64_t overflow_index;             /* first packet with that mishap; -1: none */
    int64_t nonfinite_index;
    int64_t disagree_index;
    /* round trip time and time-out, ns */
    int64_t srtt;                       /* 0: not measured yet */
    int64_t rto;
    int64_t rto_margin;                 /* least distance of rto from srtt */
    int64_t rto_max;
    int64_t probe_margin;               /* how much later than expected is late enough for a probe; INA_NEVER: for none */
    int64_t probed_at;                  /* the last probe */
    int64_t timeout_at;                 /* the last time-out */
    int64_t stall_measured;             /* the last time-out of which the stall has counted as a round trip */
    int64_t newest_sent;                /* when the latest packet that has been answered was sent */
    int64_t tolerance;                  /* how much later than srtt a packet may be overtaken without being lost */
    int64_t min_rtt;                    /* 0: not measured yet */
    /* results since the driver last looked, in the order of their PSNs */
    int64_t settled;                    /* packets before this one are counted */
    int64_t round_target;               /* tell the driver when there are so many; 0: never */
    int64_t round_results;
    int64_t round_marked;
    int64_t round_collided;
    int64_t round_late;                 /* not collided, and not within twice the least round trip time */
    int64_t round_waits;                /* what the latest that told of it told of waiting, of all ranks the most */
    uint32_t backoff;                   /* time-outs since the last new result: rto doubles with each */
    uint32_t probes;                    /* probes since the last new result */
    uint64_t counters[COUNTERS];
};

/* Values of one packet, ina_lanes.c. Wire values are big endian and need no alignment. */
uint32_t ina_exponent(const float *values, int64_t count);
void ina_quantize(const float *values, uint8_t *wire, int64_t count, int exponent, uint32_t fan_in);
void ina_dequantize(const uint8_t *wire, float *values, int64_t count, int exponent, uint32_t fan_in,
                    int average);
void ina_swap(const uint8_t *from, uint8_t *to, int64_t count);
int ina_quantize_fixed(const float *values, uint8_t *wire, int64_t count, int scale_bits, uint32_t ranks);
void ina_dequantize_fixed(const uint8_t *wire, float *values, int64_t count, int scale_bits, uint32_t ranks,
                          int average);
void ina_take_raw(const uint8_t *wire, float *values, int64_t count, uint32_t ranks, int average);

/* Window, ina_core.c. */
size_t ina_core_bytes(void);
void ina_begin(struct ina_core *core, int64_t now);
int64_t ina_emit(struct ina_core *core, uint8_t *out, int64_t max_packets, int64_t now);
void ina_absorb(struct ina_core *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now);
int64_t ina_next_timeout(const struct ina_core *core);
void ina_settle(struct ina_core *core);

/* Socket loop, ina_pump.c. */
struct ina_io {
    uint8_t *send_buffer;
    uint8_t *receive_buffer;
    int64_t send_packets;               /* room in the send buffer, packets */
    int64_t receive_bytes;
    int64_t pending;                    /* packets in the send buffer that the socket did not take yet */
    int64_t pending_from;
    int32_t fd;
    int32_t gso;                        /* UDP_SEGMENT works on this socket */
    int32_t last_error;                 /* errno of the last send or receive that failed, 0: none */
    uint32_t errors;
    uint32_t peer_address;              /* whom the socket is connected to, in network order */
    uint16_t peer_port;
    uint64_t strangers;                 /* datagrams from others, dropped */
};

enum { PUMP_DONE, PUMP_TIMER, PUMP_INTERRUPTED, PUMP_DISAGREE, PUMP_ERROR, PUMP_ROUND };

size_t ina_io_bytes(void);
int ina_pump(struct ina_core *core, struct ina_io *io, int64_t deadline);
int ina_serve(struct ina_core *core, struct ina_io *io, int64_t deadline);

#endif
