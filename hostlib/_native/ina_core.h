/* The window and retransmission core of one worker. How it works is told in hostlib/core/state.py, which has the
 * lists below again, for Python: load() compares them, name for name.
 *
 * Nothing here allocates, blocks or reads a clock; times are nanoseconds of the caller's clock.
 */
#ifndef INA_CORE_H
#define INA_CORE_H

#include <stddef.h>
#include <stdint.h>

#define INA_NEVER INT64_MAX
#define INA_ALL_WAIT 254                /* in a packet, if every result keeps this rank waiting; 255 means another thing there */

/* State of a chain: the PSNs that are equal modulo the window follow one another, one at a time. */
#define INA_CHAIN_FLAGS(CONSTANT) \
    CONSTANT(CHAIN_READY, 0x01)         /* in the ready ring */ \
    CONSTANT(CHAIN_FLIGHT, 0x02)        /* sent, no result yet */ \
    CONSTANT(CHAIN_RESENT, 0x04)        /* sent more than once: its round trip time is ambiguous */ \
    CONSTANT(CHAIN_COUNTED, 0x08)       /* a status showed our contribution in the slot */ \
    CONSTANT(CHAIN_QUEUED, 0x10)        /* in the resend ring */ \
    CONSTANT(CHAIN_QUERY, 0x20)         /* the resend is to ask for a status */ \
    CONSTANT(CHAIN_RAW, 0x40)           /* the sum overflowed: unscaled values are sent, to the fallback server */ \
    CONSTANT(CHAIN_ASKED, 0x80)         /* the last resend asked for a status */ \
    CONSTANT(CHAIN_LOST, 0x100)         /* it got none: the next resend tells all ranks, with ECN */ \
    CONSTANT(CHAIN_PROBE, 0x200)        /* the resend is a probe */ \
    CONSTANT(CHAIN_PROBED, 0x400)       /* a probe was sent: whose answer the result is cannot be told */

#define INA_KEPT_FLAGS(CONSTANT) \
    CONSTANT(KEPT_THERE, 0x01) \
    CONSTANT(KEPT_QUEUED, 0x02)         /* in the answer ring */ \
    CONSTANT(KEPT_ASKED, 0x04)          /* a reminder asked for this packet, not for an older one */

/* What a result brought, kept until its round counts it; the byte above is what it told of waiting. */
#define INA_MARK_FLAGS(CONSTANT) \
    CONSTANT(MARK_ECN, 0x01) \
    CONSTANT(MARK_COLLISION, 0x02) \
    CONSTANT(MARK_LATE, 0x04) \
    CONSTANT(MARK_WAITS, 0x08)

/* What a collective does; a shard is the part of its data that is one rank's. */
#define INA_PATTERNS(CONSTANT) \
    CONSTANT(PATTERN_SUM, 0)            /* the sum goes to all ranks, or to `target` */ \
    CONSTANT(PATTERN_SCATTER, 1)        /* the sum of a shard goes to its owner */ \
    CONSTANT(PATTERN_GATHER, 2)         /* a shard goes from its owner to all others; with one shard, `target` is its owner */

/* What the lists become. */
#define INA_VALUE(name, value) name = value,
#define INA_NAME(name) name,
#define INA_FIELD(type, name) type name;
#define INA_ARRAY(type, name, length) type name[length];

enum { INA_CHAIN_FLAGS(INA_VALUE) INA_PATTERNS(INA_VALUE) INA_KEPT_FLAGS(INA_VALUE) INA_MARK_FLAGS(INA_VALUE) };

#define INA_COUNTERS(NAME) \
    NAME(COUNT_SENT) NAME(COUNT_RESENT) NAME(COUNT_RESULTS) NAME(COUNT_STATUSES) NAME(COUNT_STALE) \
    NAME(COUNT_BAD_LENGTH) NAME(COUNT_FOREIGN) NAME(COUNT_BAD_VERSION) NAME(COUNT_BAD_KIND) NAME(COUNT_BAD_LANES) \
    NAME(COUNT_WRONG_JOB) NAME(COUNT_WRONG_TAG) NAME(COUNT_BAD_BITMAP) NAME(COUNT_WRONG_EPOCH) \
    NAME(COUNT_REMINDERS) NAME(COUNT_ANSWERS) NAME(COUNT_REPAIRS) NAME(COUNT_BYPASSED) NAME(COUNT_MARKED) \
    NAME(COUNT_COLLIDED)

/* Why a pump came back. */
#define INA_PUMPED(NAME) \
    NAME(PUMP_DONE) NAME(PUMP_TIMER) NAME(PUMP_INTERRUPTED) NAME(PUMP_DISAGREE) NAME(PUMP_ERROR) NAME(PUMP_ROUND)

enum { INA_COUNTERS(INA_NAME) COUNTERS };
enum { INA_PUMPED(INA_NAME) };

/* `CoreStruct` in Python. */
#define INA_CORE_FIELDS(FIELD, ARRAY) \
    /* the job */ \
    ARRAY(uint8_t, header, 72)              /* what packets begin with: prefix and INA header */ \
    ARRAY(uint8_t, bare_header, 72)         /* the same for packets without lanes */ \
    FIELD(uint32_t, prefix)                 /* bytes before the INA header: FRAME_PREFIX_BYTES or 0 */ \
    FIELD(uint32_t, packet_bytes)           /* the most */ \
    FIELD(uint32_t, lanes) \
    FIELD(uint32_t, window) \
    FIELD(uint32_t, most)                   /* packets that a congestion control may ever allow in flight */ \
    FIELD(uint32_t, turn)                   /* packets of a shard in a row, before those of the next */ \
    FIELD(uint32_t, job) \
    FIELD(uint32_t, epoch) \
    FIELD(uint32_t, rank) \
    FIELD(uint32_t, ranks)                  /* terms of every sum */ \
    FIELD(uint32_t, fan_in)                 /* children of the own switch; so the bitmap that follows */ \
    FIELD(uint32_t, own_bitmap) \
    FIELD(uint32_t, result_bitmap)          /* that of all results, of the root */ \
    FIELD(uint32_t, path_length) \
    FIELD(uint32_t, nodes)                  /* of the tree */ \
    FIELD(uint32_t, fallback)               /* there is a fallback server */ \
    FIELD(uint32_t, fixed)                  /* float32 is scaled by 2^scale_bits, not by exponents */ \
    FIELD(int32_t, scale_bits) \
    FIELD(uint32_t, bare)                   /* packets of sums that only announce exponents have no lanes */ \
    FIELD(uint32_t, salted)                 /* ATP: a packet's priority is the salt of its chain */ \
    FIELD(uint32_t, tells_losses)           /* what replaces a lost packet tells so, with ECN and COLLISION; queues are no news */ \
    FIELD(uint64_t, psn_limit)              /* PSNs are counted modulo this multiple of the window */ \
    FIELD(const uint32_t *, path_nodes)     /* from the own switch to the root, and our bit there */ \
    FIELD(const uint32_t *, path_bits) \
    /* per node of the tree: the last status about it in this collective */ \
    FIELD(const uint32_t *, node_id) \
    FIELD(uint32_t *, node_bitmap)          /* its contributors to the packet that the status was about */ \
    FIELD(int64_t *, node_heard_at)         /* -1: none */ \
    /* per chain */ \
    FIELD(int64_t *, index)                 /* packet of the collective that is next or in flight */ \
    FIELD(int64_t *, sent_at) \
    FIELD(uint16_t *, status) \
    FIELD(uint8_t *, exponent)              /* of data packets, by number modulo twice the window */ \
    FIELD(uint32_t *, ready_ring) \
    FIELD(uint32_t *, resend_ring) \
    FIELD(uint16_t *, marks)                /* MARK_* of the result that came last and is not in a round yet */ \
    /* per chain, with a fallback server only: the answer to a reminder of the packet finished last */ \
    FIELD(uint8_t *, answers) \
    FIELD(uint8_t *, kept) \
    FIELD(uint32_t *, answer_ring) \
    FIELD(int64_t *, wanted)                /* PSN that a reminder asked for before we sent it; -1: none */ \
    FIELD(uint8_t *, salts)                 /* where salted: of its last result, one more if that collided */ \
    /* the collective */ \
    FIELD(uint8_t *, input)                 /* written to with `feedback` only */ \
    FIELD(uint8_t *, output) \
    FIELD(int64_t, length)                  /* elements of a shard */ \
    FIELD(int64_t, shards)                  /* 1, or as many as ranks */ \
    FIELD(int64_t, stride)                  /* elements from one shard to the next, where all are */ \
    FIELD(int64_t, data_packets)            /* of all shards */ \
    FIELD(int64_t, lookahead) \
    FIELD(int64_t, total) \
    FIELD(uint64_t, base)                   /* PSN of packet 0 */ \
    FIELD(uint32_t, tag) \
    FIELD(uint32_t, is_float) \
    FIELD(uint32_t, average) \
    FIELD(uint32_t, pattern)                /* PATTERN_* */ \
    FIELD(uint32_t, target)                 /* of a sum: the rank that takes it, or TARGET_ALL; the owner of one shard */ \
    FIELD(uint32_t, per_lane)               /* values in each lane: 1, or 2, 4, 8 in fields (float32 with exponents only) */ \
    FIELD(uint32_t, feedback)               /* with more than 1: what a sum leaves out of the input stays there, in its place */ \
    /* of float32 sums with exponents: NULL where they are not so */ \
    FIELD(const uint8_t *, foreseen)        /* exponents by which data packets are scaled, known before they are sent */ \
    FIELD(uint8_t *, found)                 /* gets the exponents that results bring, by data packet */ \
    FIELD(const int64_t *, picked)          /* the data packets that are sent; NULL: all of them */ \
    FIELD(uint32_t, spare)                  /* bits by which a foreseen exponent may be above the one found */ \
    FIELD(int64_t, misfits)                 /* results whose exponent was not as foreseen: they have no values */ \
    /* progress */ \
    FIELD(uint32_t, emitted_bytes)          /* of each packet that was emitted last */ \
    FIELD(uint32_t, ready_head) \
    FIELD(uint32_t, ready_count) \
    FIELD(uint32_t, resend_head) \
    FIELD(uint32_t, resend_count) \
    FIELD(uint32_t, answer_head) \
    FIELD(uint32_t, answer_count) \
    FIELD(int64_t, completed) \
    FIELD(int64_t, in_flight) \
    FIELD(int64_t, oldest)                  /* no packet before this one lacks its result */ \
    FIELD(int64_t, frontier)                /* no packet from this one on has been sent */ \
    FIELD(int64_t, limit)                   /* packets in flight: what is allowed, within the room */ \
    FIELD(int64_t, room)                    /* packets that the link holds */ \
    FIELD(int64_t, allowed)                 /* congestion window, packets */ \
    FIELD(int64_t, claims)                  /* of `most` new packets on end, how many may claim a slot */ \
    FIELD(int64_t, claims_next)             /* the same for packets from `change_at` on */ \
    FIELD(int64_t, change_at) \
    FIELD(uint32_t, waits)                  /* how long we wait for others, told where no exponent is announced */ \
    FIELD(uint32_t, waits_next)             /* the same for packets from `change_at` on */ \
    FIELD(int64_t, late)                    /* of `uncollided` results since `waits_next` was set, those that were late */ \
    FIELD(int64_t, uncollided) \
    FIELD(void *, rule)                     /* ina_window_rule that decides; NULL: Python does */ \
    FIELD(double *, rule_state) \
    FIELD(int32_t, refused)                 /* its answer, below, is none */ \
    FIELD(int32_t, refused_status) \
    FIELD(int64_t, refused_in_flight) \
    FIELD(int64_t, refused_claims) \
    FIELD(int64_t, echo)                    /* results that met a long queue, still to be told to all ranks */ \
    FIELD(int64_t, progress_at) \
    FIELD(int64_t, first_at)                /* the first result of the collective; before it, when that began */ \
    FIELD(int64_t, overflow_index)          /* first packet with that mishap; -1: none */ \
    FIELD(int64_t, nonfinite_index) \
    FIELD(int64_t, disagree_index) \
    /* round trip time and time-out, ns */ \
    FIELD(int64_t, srtt)                    /* 0: not measured yet */ \
    FIELD(int64_t, rto) \
    FIELD(int64_t, rto_margin)              /* least distance of rto from srtt */ \
    FIELD(int64_t, rto_max) \
    FIELD(int64_t, probe_margin)            /* how much later than expected a probe is sent; INA_NEVER: none */ \
    FIELD(int64_t, probed_at)               /* the last probe */ \
    FIELD(int64_t, timeout_at)              /* the last time-out */ \
    FIELD(int64_t, stall_measured)          /* the last time-out of which the stall has counted as a round trip */ \
    FIELD(int64_t, newest_sent)             /* when the latest packet that has been answered was sent */ \
    FIELD(int64_t, sent_since)              /* nothing that is in flight and not queued was sent before this */ \
    FIELD(int64_t, tolerance)               /* how much later than srtt a packet may be overtaken without being lost */ \
    FIELD(int64_t, min_rtt)                 /* 0: not measured yet */ \
    /* results since the driver last looked, in the order of their PSNs */ \
    FIELD(int64_t, settled)                 /* packets before this one are counted */ \
    FIELD(int64_t, round_target)            /* tell the driver when there are so many; 0: never */ \
    FIELD(int64_t, round_results) \
    FIELD(int64_t, round_marked) \
    FIELD(int64_t, round_collided) \
    FIELD(int64_t, round_lost)              /* with ECN and COLLISION */ \
    FIELD(int64_t, round_late)              /* not collided, and not within twice the least round trip time */ \
    FIELD(int64_t, round_waits)             /* what the latest that told of it told of waiting, of all ranks the most */ \
    FIELD(uint32_t, backoff)                /* time-outs since the last new result: rto doubles with each */ \
    FIELD(uint32_t, probes)                 /* probes since the last new result */ \
    ARRAY(uint64_t, counters, COUNTERS)

struct ina_core {
    INA_CORE_FIELDS(INA_FIELD, INA_ARRAY)
};

/* Values of one packet, ina_lanes.c. Wire values are big endian and need no alignment. */
uint32_t ina_exponent(const float *values, int64_t count);
/* Returns the exponent of the values, as ina_exponent does. */
uint32_t ina_quantize(const float *values, uint8_t *wire, int64_t count, int exponent, uint32_t fan_in);
void ina_dequantize(const uint8_t *wire, float *values, int64_t count, int exponent, uint32_t fan_in,
                    int average);
/* Values to lanes, or lanes to values: both swap bytes where the machine is little endian. */
void ina_swap(const void *from, void *to, int64_t count);
int ina_quantize_fixed(const float *values, uint8_t *wire, int64_t count, int scale_bits, uint32_t ranks);
void ina_dequantize_fixed(const uint8_t *wire, float *values, int64_t count, int scale_bits, uint32_t ranks,
                          int average);
void ina_pack(const float *values, uint8_t *wire, int64_t count, int64_t lanes, int exponent, uint32_t ranks,
              uint32_t per_lane);
void ina_unpack(const uint8_t *wire, float *values, int64_t count, int64_t lanes, int exponent, uint32_t ranks,
                uint32_t per_lane, int average);
void ina_leave_rest(float *values, int64_t count, int exponent, uint32_t ranks, uint32_t per_lane);
void ina_take_raw(const uint8_t *wire, float *values, int64_t count, uint32_t ranks, int average);

/* Sums over ranks in memory, ina_local.c. Return the first place where a sum is not finite, or no int32; or -1. */
int64_t ina_local_sum_f32(float *out, const float *const *in, size_t inputs, size_t count, double divisor);
int64_t ina_local_sum_i32(int32_t *out, const int32_t *const *in, size_t inputs, size_t count);

/* Window, ina_core.c. */
void ina_begin(struct ina_core *core, int64_t now);
/* Packets of one length, `emitted_bytes`, which begin `stride` bytes after one another; with 0 there is nothing in between. */
int64_t ina_emit(struct ina_core *core, uint8_t *out, int64_t max_packets, int64_t stride, int64_t now);
void ina_absorb(struct ina_core *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now);

/* The same packet by packet: those that have come at the same time, between a beginning and an end. */
struct ina_batch {
    int64_t now, newest_sent, completed, quickest;
};
struct ina_batch ina_batch_begin(const struct ina_core *core, int64_t now);
void ina_batch_take(struct ina_core *core, struct ina_batch *batch, const uint8_t *packet, int64_t bytes);
void ina_batch_end(struct ina_core *core, const struct ina_batch *batch);

uint32_t ina_chain_of(const struct ina_core *core, int64_t index);
void ina_queue_resend(struct ina_core *core, uint32_t chain, uint32_t flags);
int64_t ina_next_timeout(const struct ina_core *core);
void ina_settle(struct ina_core *core);

/* Time-outs, ina_timeout.c. */
void ina_time_out(struct ina_core *core, int64_t now);

/* Rounds, ina_round.c. */
int ina_round_due(const struct ina_core *core);
void ina_end_round(struct ina_core *core, int64_t in_flight, int64_t claims);
int ina_decide(struct ina_core *core);

/* Socket loop, ina_pump.c. `IoStruct` in Python. */
#define INA_IO_FIELDS(FIELD, ARRAY) \
    FIELD(uint8_t *, send_buffer) \
    FIELD(uint8_t *, receive_buffer) \
    FIELD(int64_t, send_packets)            /* room in the send buffer, packets */ \
    FIELD(int64_t, receive_bytes) \
    FIELD(int64_t, pending)                 /* packets in the send buffer that the socket did not take yet */ \
    FIELD(int64_t, pending_from) \
    FIELD(int32_t, fd) \
    FIELD(int32_t, gso)                     /* UDP_SEGMENT works on this socket */ \
    FIELD(int32_t, last_error)              /* errno of the last send or receive that failed, 0: none */ \
    FIELD(uint32_t, errors) \
    FIELD(uint32_t, peer_address)           /* whom the socket is connected to, in network order */ \
    FIELD(uint16_t, peer_port) \
    FIELD(uint64_t, strangers)              /* datagrams from others, dropped */ \
    /* with shared memory instead; `fd` is then the Unix socket beside it, -1 at its end */ \
    FIELD(void *, area)                     /* struct ring_area; NULL: packets go through the socket */ \
    FIELD(uint32_t, slots) \
    FIELD(uint32_t, slot_bytes) \
    FIELD(uint32_t, written)                /* packets sent and taken, modulo 2^32 */ \
    FIELD(uint32_t, taken) \
    FIELD(uint32_t, full)                   /* the ring had no room for all that may be sent */

struct ina_io {
    INA_IO_FIELDS(INA_FIELD, INA_ARRAY)
};

int ina_pump(struct ina_core *core, struct ina_io *io, int64_t deadline);
int ina_serve(struct ina_core *core, struct ina_io *io, int64_t deadline);

/* ---- A connected UDP socket, read and written in batches: ina_socket.c ---- */

int64_t ina_now_ns(void);               /* the clock of time.monotonic_ns */

/* Hand what is pending in the send buffer to the socket. Returns 0 if the socket is full. A packet that the network
   refuses counts as lost: whoever needs it asks again. */
int ina_flush(struct ina_io *io, uint32_t packet_bytes);

/* Receive once what the peer has sent. Returns the bytes, 0 if there is nothing; `segment`: the length of each packet but the last. */
int64_t ina_receive(struct ina_io *io, int64_t *segment);

/* Wait for the socket, or for `control` (a file descriptor, -1: none) to be readable.
   Returns 0 to go on, 1 if a signal came, 2 if `control` is readable, -1 on failure. */
int ina_wait(struct ina_io *io, int control, int64_t until, int64_t now);

/* ---- Packets through memory that is shared with the switch (shared_ring.h), which is trusted here: ina_ring.c ---- */

/* Have the core write what may be sent now into the ring, as much as fits; `io->full` says if not all did. */
void ina_ring_send(struct ina_core *core, struct ina_io *io, int64_t now);

/* Have the core take in some of what has come. Returns how many packets. */
int64_t ina_ring_take(struct ina_core *core, struct ina_io *io);

/* As ina_wait. */
int ina_ring_wait(struct ina_io *io, int control, int64_t until, int64_t now);

/* Whether something has come. */
int ina_ring_readable(const struct ina_io *io);

#endif
