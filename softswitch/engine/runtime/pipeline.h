/* The contract between a compiled P4 program and the engine that feeds it packets.
 *
 * A program is a shared object that exports one `struct p4_program p4_program`. It owns tables,
 * registers and counters; the engine owns ports, queues, replication and time. These functions
 * do not lock: the caller holds the switch's lock.
 */
#ifndef P4_PIPELINE_H
#define P4_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#define P4_ABI 9
#define P4_MAX_FRAME 9216      /* longest frame in or out, bytes */
#define P4_AHEAD 16            /* frames; with 8, a quarter slower */
#define P4_AHEAD_BYTES 128     /* front of a frame, which has most keys */
#define P4_DROP_PORT 511       /* egress_spec after mark_to_drop */
#define P4_PRIORITIES 8        /* of standard_metadata.priority */

/* standard_metadata.instance_type, as BMv2 numbers it */
enum { P4_NORMAL = 0, P4_INGRESS_CLONE = 1, P4_EGRESS_CLONE = 2, P4_COALESCED = 3,
       P4_RECIRCULATED = 4, P4_REPLICATED = 5, P4_RESUBMITTED = 6 };

struct p4_pipeline;            /* state of one loaded program: opaque */
struct p4_packet;              /* one packet between parser and deparser: opaque, p4_program.packet_size bytes,
                                  64-byte aligned. It refers to the frame it was parsed from: keep that alive. */

/* A block's requests to the traffic manager. */
struct p4_verdict {
    uint16_t egress_spec;      /* after ingress */
    uint16_t mcast_grp;        /* after ingress; nonzero wins over egress_spec */
    uint16_t clone_session;    /* if clone */
    uint8_t clone;             /* 0, or 1: clone was called in this block */
    uint8_t dropped;           /* after ingress: egress_spec is the drop port and mcast_grp is 0;
                                  after egress: nothing to send */
    uint8_t resubmit;          /* after ingress: parse the original frame again */
    uint8_t recirculate;       /* after egress: the output goes back to the parser */
    uint8_t priority;          /* after ingress: 0..7, the highest leaves first */
    uint8_t unicast;           /* after ingress: to egress_spec besides the groups (Tofino) */
    uint16_t mcast_grp_2;      /* after ingress: a second group (Tofino) */
    uint16_t rid;              /* of the packet: see the next */
    uint16_t exclude_1;        /* group nodes with this exclusion id get no copy */
    uint16_t exclude_2;        /* copies with the packet's rid are dropped at this id's ports */
    int32_t clone_fields;      /* field list to keep in the clone, or -1 */
    int32_t resubmit_fields;   /* field list to keep, or -1 */
    int32_t recirculate_fields;
};

/* The traffic manager's metadata of a copy, for egress. */
struct p4_copy {
    uint16_t egress_port;
    uint16_t egress_rid;
    uint32_t instance_type;
    uint32_t enq_timestamp;    /* us */
    uint32_t enq_qdepth;       /* packets */
    uint32_t deq_timedelta;    /* us */
    uint32_t deq_qdepth;       /* packets */
    uint64_t now_us;
};

/* A field of a packet's metadata, of up to 64 bits. */
struct p4_field {
    const char *name;
    size_t offset, bytes;      /* in struct p4_packet */
};

/* Functions that only begin to fetch memory are inlined: gcc considers them to have no effect, and would remove the
   calls. */
#define P4_FETCH static inline __attribute__((always_inline, unused))

/* Begin to fetch `bytes` from `at` on, up to eight cache lines: processors then continue by themselves. */
P4_FETCH void p4_fetch_lines(const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes && i < 512; i += 64)
        __builtin_prefetch((const uint8_t *)at + i);
}

struct p4_program {
    uint32_t abi;              /* P4_ABI */
    uint32_t packet_size;

    struct p4_pipeline *(*create)(uint64_t seed);   /* seed of random(); NULL: out of memory */
    void (*destroy)(struct p4_pipeline *);

    /* Parse `frame`, verify checksums, run ingress. `previous` is NULL, or the packet whose field list
       `field_list` is to be kept (resubmit, recirculate). */
    void (*ingress)(struct p4_pipeline *, struct p4_packet *, const uint8_t *frame, uint32_t length,
                    uint16_t port, uint32_t instance_type, uint64_t now_us,
                    const struct p4_packet *previous, int32_t field_list, struct p4_verdict *);

    /* An independent copy, sharing the frame. */
    void (*copy)(struct p4_packet *to, const struct p4_packet *from);

    /* The same without copying large headers: `to` reads them from `from`, which must not be a loan itself and
       must not change while `to` is used. */
    void (*lend)(struct p4_packet *to, const struct p4_packet *from);

    /* Make `to` a clone of `from`, by instance_type: of ingress, whose `frame` is parsed anew, or of egress, whose
       headers and payload stay as egress left them (v1model), or whose output is `frame` (Tofino). User metadata is
       zero except for the field list. */
    void (*clone)(struct p4_pipeline *, struct p4_packet *to, const struct p4_packet *from,
                  uint32_t instance_type, const uint8_t *frame, uint32_t length, int32_t field_list);

    /* Run egress, update checksums, deparse into `out` (P4_MAX_FRAME bytes).
       Returns the frame's length, 0 if dropped. */
    uint32_t (*egress)(struct p4_pipeline *, struct p4_packet *, const struct p4_copy *,
                       uint8_t *out, struct p4_verdict *);

    /* True if look-ups wait for memory, so that calling `ahead` pays. NULL: no key is known in advance. */
    uint32_t (*waits)(const struct p4_pipeline *);

    /* Begin to fetch the entries that ingress will look up for a frame P4_AHEAD frames later. It changes no state,
       and reads only the frame's first P4_AHEAD_BYTES. */
    void (*ahead)(struct p4_pipeline *, const uint8_t *frame, uint32_t length, uint16_t port);

    const struct p4_field *metadata;   /* the last one has no name; NULL: no readable fields */
};

#endif
