/* The core of the fallback server. How it works is told in hostlib/fallback/core.py; the numpy core beside that file
 * makes the same decisions and writes the same bytes.
 *
 * ina_fallback.c        what packets mean, and the sums of their lanes
 * ina_fallback_emit.c   what is sent
 * ina_fallback_store.c  entries and memory, the beginning and end of a core and its jobs
 * ina_pump.c            the socket loop
 *
 * Only ina_fallback_new and ina_fallback_add_job allocate; times are nanoseconds of the caller's clock.
 */
#ifndef INA_FALLBACK_H
#define INA_FALLBACK_H

#include "ina_core.h"
#include "ina_wire.h"

/* These and the counters are again, and explained, in hostlib/fallback/config.py; they are compared by name. */
#define FALLBACK_CONSTANTS(CONSTANT) \
    CONSTANT(FALLBACK_LEVELS, 14) \
    CONSTANT(FALLBACK_STATUS_QUEUE, 1024) \
    CONSTANT(FALLBACK_BATCH, 64)

#define FALLBACK_COUNTERS(NAME) \
    NAME(FB_PACKETS) NAME(FB_GRADIENT_BYTES) NAME(FB_MERGED) NAME(FB_OVERLAPS) NAME(FB_LATE) NAME(FB_RESULTS) \
    NAME(FB_ANSWERS) NAME(FB_REPAIRS) NAME(FB_REPLAYS) NAME(FB_STATUSES) NAME(FB_REMINDERS) NAME(FB_EXPIRED) \
    NAME(FB_FORGOTTEN) NAME(FB_DISAGREEMENTS) NAME(FB_UNASKED) NAME(FB_UNKNOWN_JOB) NAME(FB_WRONG_EPOCH) \
    NAME(FB_BAD_LENGTH) NAME(FB_FOREIGN) NAME(FB_BAD_VERSION) NAME(FB_BAD_KIND) NAME(FB_BAD_LANES) \
    NAME(FB_WRONG_NODE) NAME(FB_FOREIGN_BITS) NAME(FB_WRONG_FAN_IN) NAME(FB_STALE) NAME(FB_NO_ROOM)

enum { FALLBACK_CONSTANTS(INA_VALUE) };
enum { FALLBACK_COUNTERS(INA_NAME) FB_COUNTERS };

#define FALLBACK_NONE UINT32_MAX

enum { FB_SUMMING, FB_REPAIRING, FB_FINISHED };

enum {
    FB_MARKS = FLAG_ECN | FLAG_COLLISION | FLAG_BYPASS, FB_STICKY = FLAG_OVERFLOW | FLAG_DISAGREE | FB_MARKS
};

struct fb_node {                        /* parents come before their children, the root is the first */
    uint32_t id;
    uint32_t parent;                    /* index */
    uint32_t bit;                       /* at the parent */
    uint32_t full;
    uint32_t fan_in;
    int32_t children[MAX_FAN_IN]; /* by bit: a rank, or minus the index of a node */
};

struct fb_piece {                       /* one packet's worth of lanes */
    uint32_t next;                      /* of the same entry, or free */
    uint32_t key;                       /* index of a node; a rank in a repair; 0 once finished */
    uint32_t bitmap;
};

struct fb_list {
    uint32_t first;
    uint32_t last;
};

struct fb_link {
    uint32_t next, previous;
};

enum { FB_PLACE, FB_QUEUE, FB_LINKS };  /* the lists that an entry is in: that of its phase, and the queue of results */

struct fb_entry {
    struct fb_job *job;
    int64_t first_at;
    int64_t at;                         /* when it came into the list that it is in */
    int64_t heard_at;
    int64_t reminded_at;                /* -1: never */
    int64_t sent_at;                    /* -1: never */
    struct fb_link links[FB_LINKS];
    uint32_t hash_next;
    uint32_t serial;                    /* of its use: another after it was forgotten */
    uint32_t psn;
    uint32_t tag;
    uint32_t pieces;                    /* the first */
    uint32_t piece_count;
    int32_t asked;                      /* index of the node whose status is queued, -1: none */
    uint16_t target;
    uint16_t valid;
    uint8_t priority;
    uint8_t exponent;
    uint8_t flags;
    uint8_t phase;
    uint8_t level;
    uint8_t queued;
    uint8_t starved;                    /* something of it has come for which there was no room */
};

struct fb_job {
    uint32_t id;
    uint32_t epoch;
    uint32_t ranks;
    uint32_t window;                    /* 0: not known */
    uint64_t psn_limit;
    uint32_t front;                     /* two windows before it everything is finished everywhere */
    uint32_t has_front;
    int64_t spread;                     /* how long the last contribution takes to follow the first, ns */
    uint32_t piece_count;
    uint32_t entry_count;
    uint32_t finished_count;
    struct fb_list finished;
    struct fb_list waiting[FALLBACK_LEVELS];
    uint64_t counters[FB_COUNTERS];
    uint32_t *have;                     /* scratch: what an entry has, for each node */
    const int32_t **ordered;            /* scratch: raw values by rank */
    uint32_t node_count;
    struct fb_node nodes[];
};

struct fb_status {
    uint32_t entry;
    uint32_t serial;
    uint32_t node;
};

struct ina_fallback {
    uint32_t lanes;
    uint32_t capacity;
    uint32_t prefix;                    /* bytes before the INA header */
    uint8_t long_prefix[FRAME_PREFIX_BYTES];
    uint8_t short_prefix[FRAME_PREFIX_BYTES];
    int64_t remind_ns;
    int64_t remind_max_ns;
    int64_t forget_ns;
    struct fb_job **jobs;               /* in the order in which they came */
    uint32_t job_count;
    struct fb_job *by_id[65536];
    struct fb_entry *entries;
    struct fb_piece *pieces;
    int32_t *values;                    /* capacity * lanes */
    uint32_t *buckets;
    uint32_t bucket_mask;
    uint32_t free_entry, fresh_entry;   /* those used before, and how many ever were */
    uint32_t free_piece, fresh_piece;
    uint32_t used;                      /* pieces */
    uint32_t serial;
    uint32_t starved;                   /* whether an entry may be */
    struct fb_list results;             /* entries whose result waits to be sent */
    struct fb_status statuses[FALLBACK_STATUS_QUEUE];
    uint32_t status_head, status_count;
    uint64_t counters[FB_COUNTERS];     /* of no job */
    int64_t pending_bytes;              /* length of the packets that wait in the send buffer */
};

/* ina_fallback_store.c */
int64_t fb_ahead(const struct fb_job *job, uint32_t psn, uint32_t other);
int fb_is_stale(const struct fb_job *job, uint32_t psn);
void fb_advance(struct fb_job *job, uint64_t psn);
int64_t fb_delay(const struct ina_fallback *core, const struct fb_job *job, uint32_t level);
void fb_measure(const struct ina_fallback *core, struct fb_job *job, int64_t sample);
uint32_t fb_find_node(const struct fb_job *job, uint32_t id);           /* FALLBACK_NONE: unknown */
struct fb_entry *fb_find(struct ina_fallback *core, const struct fb_job *job, uint32_t psn);
struct fb_entry *fb_new_entry(struct ina_fallback *core, struct fb_job *job, uint32_t psn);
uint32_t fb_index(const struct ina_fallback *core, const struct fb_entry *entry);
void fb_wait(struct ina_fallback *core, struct fb_entry *entry, uint32_t level, int64_t now);
void fb_hasten(struct ina_fallback *core, struct fb_entry *entry, int64_t now);
void fb_starve(struct ina_fallback *core, struct fb_entry *entry);
void fb_hasten_starved(struct ina_fallback *core, int64_t now);
void fb_enlist_finished(struct ina_fallback *core, struct fb_entry *entry);
void fb_queue(struct ina_fallback *core, struct fb_entry *entry);
void fb_unqueue(struct ina_fallback *core, struct fb_entry *entry);
uint32_t fb_piece_of(const struct ina_fallback *core, const struct fb_entry *entry, uint32_t key);
int fb_place(struct ina_fallback *core, struct fb_job *job, uint32_t psn, const struct fb_entry *current);
uint32_t fb_keep(struct ina_fallback *core, struct fb_entry *entry, uint32_t key, uint32_t bitmap);
void fb_drop(struct ina_fallback *core, struct fb_entry *entry, uint32_t piece);
void fb_drop_all(struct ina_fallback *core, struct fb_entry *entry);
void fb_forget(struct ina_fallback *core, struct fb_entry *entry, int reason);
int fb_covered(const struct ina_fallback *core, const struct fb_entry *entry, uint32_t node);
void fb_bitmaps(const struct ina_fallback *core, const struct fb_entry *entry); /* into job->have */

static inline int32_t *fb_values(const struct ina_fallback *core, uint32_t piece)
{
    return core->values + (size_t)piece * core->lanes;
}

/* What Python calls. */
struct ina_fallback *ina_fallback_new(uint32_t lanes, uint32_t capacity, uint32_t prefix, const uint8_t *long_prefix,
                                      const uint8_t *short_prefix, int64_t remind_ns, int64_t remind_max_ns,
                                      int64_t forget_ns);
void ina_fallback_free(struct ina_fallback *core);
int ina_fallback_add_job(struct ina_fallback *core, uint32_t id, uint32_t epoch, uint32_t ranks, uint32_t window,
                         uint64_t psn_limit, uint32_t node_count, const int32_t *nodes);
void ina_fallback_remove_job(struct ina_fallback *core, uint32_t id);
void ina_fallback_absorb(struct ina_fallback *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now);
int64_t ina_fallback_emit(struct ina_fallback *core, uint8_t *out, int64_t bytes, int64_t now, int64_t *packet_bytes);
int64_t ina_fallback_next_timeout(const struct ina_fallback *core);
void ina_fallback_counters(const struct ina_fallback *core, int64_t job, uint64_t *out);

#endif
