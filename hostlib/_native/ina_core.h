/* The window and retransmission core of one worker. How it works is told in hostlib/core/state.py, which also
 * mirrors `struct ina_core`; hostlib/core/numpy_kernel.py does the same in Python.
 *
 * Nothing here allocates, blocks or reads a clock; times are nanoseconds of the caller's clock.
 */
#ifndef INA_CORE_H
#define INA_CORE_H

#include <stddef.h>
#include <stdint.h>

#define INA_HEADER_BYTES 24
#define INA_PREFIX_BYTES 42             /* Ethernet, IPv4, UDP */
#define INA_NEVER INT64_MAX

/* State of a chain: the PSNs that are equal modulo the window follow one another, one at a time. */
enum {
    CHAIN_READY = 0x01,                 /* in the ready ring */
    CHAIN_FLIGHT = 0x02,                /* sent, no result yet */
    CHAIN_RESENT = 0x04,                /* sent more than once: its round trip time is ambiguous */
    CHAIN_COUNTED = 0x08,               /* a status showed our contribution in the slot */
    CHAIN_QUEUED = 0x10,                /* in the resend ring */
    CHAIN_QUERY = 0x20                  /* the resend is to ask for a status */
};

enum {
    COUNT_SENT, COUNT_RESENT, COUNT_RESULTS, COUNT_STATUSES, COUNT_STALE, COUNT_BAD_LENGTH, COUNT_FOREIGN,
    COUNT_BAD_VERSION, COUNT_BAD_KIND, COUNT_BAD_LANES, COUNT_WRONG_JOB, COUNT_WRONG_TAG, COUNT_BAD_BITMAP,
    COUNTERS
};

struct ina_core {
    /* the job */
    uint8_t header[72];                 /* what every packet begins with: prefix and INA header */
    uint32_t prefix;                    /* bytes before the INA header: INA_PREFIX_BYTES or 0 */
    uint32_t packet_bytes;
    uint32_t lanes;
    uint32_t window;
    uint32_t job;
    uint32_t fan_in;
    uint32_t own_bitmap;
    uint32_t full_bitmap;
    uint64_t psn_limit;                 /* PSNs are counted modulo this multiple of the region's size */
    /* per chain */
    int64_t *index;                     /* packet of the collective that is next or in flight */
    int64_t *sent_at;
    uint8_t *status;
    uint8_t *exponent;                  /* of the latest data packet whose exponent came in on this chain */
    uint32_t *ready_ring;
    uint32_t *resend_ring;
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
    /* progress */
    uint32_t ready_head;
    uint32_t ready_count;
    uint32_t resend_head;
    uint32_t resend_count;
    uint32_t status_bitmap;             /* contributors to the packet that the last status was about */
    int64_t completed;
    int64_t in_flight;
    int64_t limit;                      /* congestion window, packets */
    int64_t progress_at;
    int64_t status_at;                  /* -1: none in this collective */
    int64_t overflow_index;             /* first packet with that mishap; -1: none */
    int64_t nonfinite_index;
    int64_t disagree_index;
    /* round trip time and time-out, ns */
    int64_t srtt;                       /* 0: not measured yet */
    int64_t rto;
    int64_t rto_margin;                 /* least distance of rto from srtt */
    int64_t rto_max;
    int64_t timeout_at;                 /* the last time-out */
    int64_t newest_sent;                /* when the latest packet that has been answered was sent */
    uint32_t backoff;                   /* time-outs since the last new result: rto doubles with each */
    uint64_t counters[COUNTERS];
};

/* Values of one packet, ina_lanes.c. Wire values are big endian and need no alignment. */
uint32_t ina_exponent(const float *values, int64_t count);
void ina_quantize(const float *values, uint8_t *wire, int64_t count, int exponent, uint32_t fan_in);
void ina_dequantize(const uint8_t *wire, float *values, int64_t count, int exponent, uint32_t fan_in,
                    int average);
void ina_swap(const uint8_t *from, uint8_t *to, int64_t count);

/* Window, ina_core.c. */
size_t ina_core_bytes(void);
void ina_begin(struct ina_core *core, int64_t now);
int64_t ina_emit(struct ina_core *core, uint8_t *out, int64_t max_packets, int64_t now);
void ina_absorb(struct ina_core *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now);
int64_t ina_next_timeout(const struct ina_core *core);

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
};

enum { PUMP_DONE, PUMP_TIMER, PUMP_INTERRUPTED, PUMP_DISAGREE, PUMP_ERROR };

size_t ina_io_bytes(void);
int ina_pump(struct ina_core *core, struct ina_io *io, int64_t deadline);

#endif
