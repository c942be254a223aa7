/* The data-path engine: ports, traffic manager, impairments and event loop around one P4 program.
 *
 * This is the interface that the Python side (switch.py) uses. The core does no I/O and has no clock
 * of its own: the caller passes frames and the time, frames collect in each port's outbox, and
 * engine_next_event returns the time of the next call. engine_run is the real-time driver:
 * it feeds the core from sockets and sends the frames of the outboxes.
 *
 * Every function takes the engine's lock itself, except engine_create and engine_destroy. The lock
 * is recursive, so a caller may hold it over several calls.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "pipeline.h"

#define ENGINE_PORTS 512            /* port numbers are bit<9> */
#define ENGINE_NEVER UINT64_MAX     /* engine_next_event: nothing scheduled */
#define ENGINE_MAX_DEPTH 64         /* most resubmissions, recirculations and clones in sequence for one packet */
#define ENGINE_MAX_PASSES 4096      /* and most in all for one received frame */
#define ENGINE_ERROR_BYTES 256

/* Everything else is hidden: the engine shares a process with the programs that it runs. */
#pragma GCC visibility push(default)

struct engine;

/* One direction of one port. Probabilities are thresholds for a 64-bit random number;
   UINT64_MAX is "always". */
struct engine_impairments {
    uint64_t loss;
    uint64_t duplicate;
    uint64_t reorder;
    uint64_t corrupt;               /* frame check fails: lost, with a counter of its own */
    uint64_t delay_ns;
    uint64_t jitter_ns;             /* more delay, uniform, order kept */
    uint64_t reorder_ns;            /* more delay for reordered frames, uniform, order not kept */
    uint64_t rate_bps;              /* 0: unlimited */
    uint64_t burst_bytes;           /* may be sent above the rate */
    uint64_t seed;
    uint64_t queue_packets;         /* most packets that wait for the rate */
};

/* Counters of one port, or of the switch (the last five, for packets that belong to no port). */
struct engine_statistics {
    uint64_t rx_packets;            /* arrived at the port, before impairments */
    uint64_t rx_bytes;
    uint64_t rx_lost;               /* impairments */
    uint64_t rx_corrupted;
    uint64_t rx_duplicated;
    uint64_t rx_reordered;
    uint64_t rx_queue_full;         /* waiting for rate_bps */
    uint64_t rx_malformed;          /* empty, longer than P4_MAX_FRAME, or an offload that cannot be split */
    uint64_t rx_socket_full;        /* dropped by the kernel: we were too slow (a superframe counts once) */
    uint64_t rx_no_program;         /* before load */
    uint64_t rx_stranger;           /* UDP port: from an address other than the peer's; not in rx_packets */
    uint64_t ingress_dropped;       /* by the program, of packets received here */
    uint64_t egress_dropped;        /* by the program, of packets about to leave here */
    uint64_t tx_packets;            /* left the port */
    uint64_t tx_bytes;
    uint64_t tx_lost;
    uint64_t tx_corrupted;
    uint64_t tx_duplicated;
    uint64_t tx_reordered;
    uint64_t tx_queue_full;
    uint64_t tx_blocked;            /* the socket did not take it, or the outbox is full */
    uint64_t tx_no_peer;            /* no peer has sent to this UDP port yet */
    uint64_t tx_too_long;           /* longer than the interface's MTU */
    uint64_t no_port;               /* sent to a port that does not exist */
    uint64_t no_group;              /* multicast to a group, or cloned to a session, that does not exist */
    uint64_t loops;                 /* stopped by ENGINE_MAX_DEPTH or ENGINE_MAX_PASSES */
    uint64_t overruns;              /* delayed frames above the memory limit */
    uint64_t unloaded;              /* queued when another program was loaded */
};

#define ENGINE_CAPTURE_NOTES 8
#define ENGINE_CAPTURE_NAME 32

/* What to capture of frames at the ports (engine_capture.c). */
struct engine_capture_config {
    uint64_t epoch_ns;              /* the engine's time 0 in the records */
    uint64_t capacity;              /* most bytes of one port's records waiting for engine_captured */
    uint32_t snap;                  /* most bytes of a frame */
    char notes[ENGINE_CAPTURE_NOTES][ENGINE_CAPTURE_NAME];     /* metadata of the program; "": none */
};

struct engine_member {
    uint16_t port;
    uint16_t rid;
    uint16_t exclusion;     /* packets with this level1_exclusion_id skip the member; 0: none (Tofino) */
};

struct engine *engine_create(void);             /* NULL: no memory or no descriptors */
void engine_destroy(struct engine *);           /* do not call it while engine_run runs */

void engine_lock(struct engine *);
void engine_unlock(struct engine *);

/* Each returns 0, or -1 with the reason in `error` (ENGINE_ERROR_BYTES). */
int engine_add_memory(struct engine *, uint16_t number, const struct engine_impairments *rx,
                      const struct engine_impairments *tx, int is_cpu, char *error);
/* `fd` is a bound UDP socket to take over, or -1 to bind one to `local` (0: any). `peer` 0: the first sender. */
/* Lose frames that arrive at a port (rx) or leave by it (tx) if a random 64-bit number is below a threshold. */
void engine_set_loss(struct engine *, uint16_t number, uint64_t rx, uint64_t tx);
int engine_add_udp(struct engine *, uint16_t number, const struct engine_impairments *rx,
                   const struct engine_impairments *tx, int fd, uint16_t local, uint16_t peer, char *error);
int engine_add_interface(struct engine *, uint16_t number, const struct engine_impairments *rx,
                         const struct engine_impairments *tx, const char *name, char *error);
/* `fd` is a listening Unix socket (SOCK_SEQPACKET); the engine owns it, also on failure: shared_ring.h. */
int engine_add_shared(struct engine *, uint16_t number, const struct engine_impairments *rx,
                      const struct engine_impairments *tx, int fd, char *error);
/* Serve a just added port, if engine_run runs; call both under engine_lock. On failure the port is removed. */
int engine_serve_port(struct engine *, uint16_t number, char *error);
uint16_t engine_udp_port(struct engine *, uint16_t number);

/* Swap programs between two packets. NULL: packets are dropped. Returns -1 if the ABI differs, or with cables. */
int engine_load(struct engine *, const struct p4_program *, struct p4_pipeline *);

/* `members` NULL removes. Returns -1 without memory. */
int engine_set_group(struct engine *, uint16_t group, const struct engine_member *members, uint32_t count);
int engine_set_session(struct engine *, uint16_t session, const struct engine_member *members,
                       uint32_t count, uint32_t truncate);

/* Set the ports of a level2_exclusion_id; `members` NULL: the port of that number. */
int engine_set_exclusion(struct engine *, uint16_t id, const struct engine_member *members, uint32_t count);

/* Deliver frames to `port` now; they lie back to back in `bytes`. */
void engine_inject(struct engine *, uint16_t port, const uint8_t *bytes, const uint32_t *lengths,
                   uint32_t count, uint64_t now_us);
void engine_advance(struct engine *, uint64_t now_us);
uint64_t engine_next_event(struct engine *);

/* Return the number of a memory port's frames, then take all of them: `lengths` and `times_us` per frame. */
uint32_t engine_pending(struct engine *, uint16_t port, uint64_t *bytes);
uint32_t engine_drain(struct engine *, uint16_t port, uint8_t *bytes, uint32_t *lengths, uint64_t *times_us,
                      uint32_t count, uint64_t capacity);

void engine_port_statistics(struct engine *, uint16_t port, struct engine_statistics *);
void engine_switch_statistics(struct engine *, struct engine_statistics *);

/* Start a new capture, or with NULL stop. Returns -1 without memory. */
int engine_capture(struct engine *, const struct engine_capture_config *);
/* Take a port's records if all of them fit; returns their bytes. `dropped`: records lost for lack of room. */
uint64_t engine_captured(struct engine *, uint16_t port, uint8_t *bytes, uint64_t room, uint64_t *dropped);

uint64_t engine_now(struct engine *);           /* microseconds since engine_create */
void engine_prepare(struct engine *);           /* before each engine_run: forget an earlier engine_stop */
int engine_run(struct engine *, char *error);   /* until engine_stop; -1 with the reason if it cannot */
void engine_stop(struct engine *);
int engine_wait_cpu(struct engine *, int timeout_ms);  /* 1: frames at a CPU port; 0: none; -1: stopped */

/* ---- Several engines in virtual time (engine_cables.c). Frames enter them only through these functions. ---- */

/* A frame that leaves `source` by `port` enters `target` at `target_port` after the delay. */
struct engine_cable {
    uint32_t source, target;
    uint16_t port, target_port;
    uint64_t delay_us;
};

/* A port that leads to a host, not to an engine. */
struct engine_end {
    uint32_t engine;
    uint16_t port;
};

struct cabling;

/* All ports are memory ports. Cables come in the order of their sources. Returns NULL without memory. */
struct cabling *cabling_create(struct engine *const *, uint32_t count, const struct engine_cable *,
                               uint32_t cable_count, const struct engine_end *, uint32_t end_count);
void cabling_destroy(struct cabling *);         /* call it before its engines are destroyed */
uint64_t cabling_next_event(const struct cabling *);
/* Process all events up to `now_us`, or only their first step. Returns the time reached; ENGINE_NEVER: no memory. */
uint64_t cabling_advance(struct cabling *, uint64_t now_us, int one_step);
void cabling_send(struct cabling *, uint32_t end, const uint8_t *bytes, const uint32_t *lengths, uint32_t count,
                  uint64_t now_us);
/* Schedule the same frame at each of these future times. */
void cabling_send_later(struct cabling *, uint32_t end, const uint8_t *frame, uint32_t length,
                        const uint64_t *times_us, uint32_t count);
/* The ends at which frames have arrived since the last call; the array has room for all ends. */
uint32_t cabling_waiting(struct cabling *, uint32_t *ends);
/* The frames that wait at an end, back to back, valid until the next call; and a call to discard them. */
const uint8_t *cabling_frames(struct cabling *, uint32_t end, uint32_t *count, const uint32_t **lengths);
void cabling_forget(struct cabling *, uint32_t end);


#pragma GCC visibility pop

#endif
