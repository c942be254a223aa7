/* The steps of exclusive.p4 at a root for a contribution, and for the result's copies, by hand: the ceiling for
 * the compiled program. Every check, checksum, look-up, counter and field of that path is here, and nothing else:
 * sums go from the slot straight into the frame, and packets of another path (raw values, resent packets, results
 * from above) are refused. The byte layout is as in p4src/include/headers.p4, fields big endian.
 * It is compiled behind frame_loop.c, of which it has the frames and the clock.
 */
#include "prelude.h"

enum { IP = 14, UDP = 34, INA = 42, VALUES = 70 };              /* offsets in a frame */
enum { AGGREGATED = 0, COMPLETED = 1, DUPLICATE = 3, STALE = 5, REFUSED = 6, OVERFLOWED = 16, DISAGREED = 17 };
enum { FLAG_OVERFLOW = 4, FLAG_DISAGREE = 8, FLAGS_OF_SUM = 0x3c, FLAG_RAW = 0x80, SLOT_FINAL = 1 };
enum { BUCKETS = 128, OUTCOMES = 32 };

struct job {
    uint32_t key, used;
    uint32_t row, offset, size, generation, full_bitmap;
    uint16_t node;
    uint8_t fan_in;
};

struct member {
    uint32_t key, used;         /* job << 16 | port */
    uint32_t bitmap;
};

struct receiver {
    uint32_t key, used;         /* job << 16 | replication id */
    uint8_t mac[6], ip[4], port[2];
    uint16_t first_rank, ranks;
};

struct slot {
    uint32_t generation, psn, bitmap, tag;
    uint8_t exponent, flags;
    uint32_t lanes[] __attribute__((aligned(64)));
};

struct by_hand {
    struct job jobs[BUCKETS];
    struct member members[BUCKETS];
    struct receiver receivers[BUCKETS];
    uint64_t outcomes[BUCKETS * OUTCOMES];
    uint32_t lanes, slot_bytes;
    uint8_t *slots;
};

static uint32_t bucket(uint32_t key)
{
    return (key * 0x9e3779b1u) >> 25;
}

/* The entry of `key` in a table of BUCKETS, NULL if there is none, or a free one if `free`. */
#define FIND(table, wanted, free) \
    ({ \
        uint32_t at = bucket(wanted); \
        while ((table)[at].used && (table)[at].key != (wanted)) \
            at = (at + 1) % BUCKETS; \
        (table)[at].used || (free) ? &(table)[at] : NULL; \
    })

/* The checksum of an IPv4 header, with its bytes exchanged; zero: it is right. */
static uint16_t checksum_of(const uint8_t *header)
{
    return (uint16_t)p4_fold(p4_sum_words(header, 20));
}

static uint32_t add(uint32_t *restrict lanes, const uint8_t *restrict values, uint32_t count)
{
    uint32_t signs = 0;
    P4_UNROLLED
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = p4_load32(values + 4 * i), old = lanes[i], sum = old + value;
        signs |= (old ^ sum) & (value ^ sum);
        lanes[i] = sum;
    }
    return signs >> 31;
}

/* Add a frame to its slot. Returns the slot if that has the sum, and the result's header in `out`; else NULL. */
static struct slot *join(struct by_hand *s, const uint8_t *frame, uint32_t length, uint16_t port, uint8_t *out)
{
    const uint8_t *ip = frame + IP, *udp = frame + UDP, *ina = frame + INA;
    uint32_t outcome = REFUSED, row = 0, lanes = s->lanes;
    struct slot *complete = NULL;
    if (length != VALUES + 4 * lanes || p4_load16(frame + 12) != 0x0800 || ip[0] != 0x45 || (p4_load16(ip + 6) & 0x1fff)
        || ip[9] != 17 || p4_load16(udp + 2) != 42592 || checksum_of(ip))
        goto count;
    if (ina[0] != 0x21 || p4_load16(ina + 18) != lanes || p4_load16(udp + 4) != length - UDP
        || p4_load16(ip + 2) != length - IP || p4_load16(ina + 16) > lanes || ina[1] & FLAG_RAW)
        goto count;
    uint32_t number = p4_load16(ina + 2), psn = p4_load32(ina + 4), bitmap = p4_load32(ina + 8), tag = p4_load32(ina + 20);
    const struct job *job = FIND(s->jobs, number, 0);
    const struct member *member = FIND(s->members, number << 16 | port, 0);
    if (!job || !member || ina[15] != (uint8_t)job->generation || !(bitmap & member->bitmap)
        || bitmap & (bitmap - 1) || p4_load16(ina + 24) != job->node || ina[12] != job->fan_in)
        goto count;
    row = job->row;
    struct slot *slot = (struct slot *)(void *)(s->slots + (size_t)(job->offset + psn % job->size) * s->slot_bytes);
    uint32_t age = psn - slot->psn;
    int known = slot->generation == job->generation, same = known && age == 0;
    if (known && age >> 31) {
        outcome = STALE;
        goto count;
    }
    uint32_t before = same ? slot->bitmap : 0;
    if (before & bitmap) {
        outcome = DUPLICATE;
        goto count;
    }
    uint8_t exponent = same && slot->exponent > ina[14] ? slot->exponent : ina[14];
    uint8_t flags = (uint8_t)((same ? slot->flags & FLAGS_OF_SUM : 0) | (ina[1] & FLAGS_OF_SUM));
    flags |= same && tag != slot->tag ? FLAG_DISAGREE : 0;
    if (!same)
        p4_load32_all(slot->lanes, frame + VALUES, lanes);
    else if (add(slot->lanes, frame + VALUES, lanes))
        flags |= FLAG_OVERFLOW;
    int full = (before | bitmap) == job->full_bitmap;
    slot->generation = job->generation;
    slot->psn = psn;
    slot->bitmap = before | bitmap;
    slot->tag = same ? slot->tag : tag;
    slot->exponent = exponent;
    slot->flags = (uint8_t)(flags | (full ? SLOT_FINAL : 0));
    outcome = full ? COMPLETED : AGGREGATED;
    if (!full)
        goto count;
    complete = slot;
    s->outcomes[row * OUTCOMES + OVERFLOWED] += (flags & FLAG_OVERFLOW) != 0;
    s->outcomes[row * OUTCOMES + DISAGREED] += (flags & FLAG_DISAGREE) != 0;
    memcpy(out, frame, VALUES);
    memcpy(out + 6, frame, 6);                          /* from the address that the sender knows us by */
    memcpy(out + IP + 12, ip + 16, 4);
    memcpy(out + UDP, udp + 2, 2);
    p4_store16(out + IP + 10, 0);
    p4_store16(out + UDP + 6, 0);
    out[IP + 1] &= 0xfc;
    out[IP + 8] = 64;
    out[INA] = 0x22;
    out[INA + 1] = flags;
    out[INA + 14] = exponent;
    p4_store32(out + INA + 8, job->full_bitmap);
    p4_store32(out + INA + 20, slot->tag);
    p4_store16(out + INA + 24, 0);
count:
    s->outcomes[row * OUTCOMES + outcome]++;
    return complete;
}

/* Address the copy of a result to a receiver, with or without values. Returns its length; 0: there is no such one. */
static uint32_t address(const struct by_hand *s, const struct slot *slot, uint16_t rid, uint32_t depth, uint8_t *out)
{
    uint32_t number = p4_load16(out + INA + 2), target = p4_load16(out + INA + 26), lanes = s->lanes;
    const struct receiver *receiver = FIND(s->receivers, number << 16 | rid, 0);
    if (!receiver)
        return 0;
    int there = (uint16_t)((target & 0x7fff) - receiver->first_rank) < receiver->ranks;
    int takes = target & 0x8000 ? !(there && receiver->ranks == 1) : there;
    memcpy(out, receiver->mac, 6);
    memcpy(out + IP + 16, receiver->ip, 4);
    memcpy(out + UDP + 2, receiver->port, 2);
    if (depth >= 64)
        out[IP + 1] |= 3;
    uint32_t bytes = takes ? 4 * lanes : 0;
    if (!takes)
        p4_store16(out + INA + 16, 0);
    p4_store16(out + INA + 18, takes ? lanes : 0);
    p4_store16(out + UDP + 4, 36 + bytes);
    p4_store16(out + IP + 2, 56 + bytes);
    p4_store16(out + IP + 10, 0);
    uint16_t checksum = checksum_of(out + IP);
    memcpy(out + IP + 10, &checksum, 2);
    if (takes)
        p4_store32_all(out + VALUES, slot->lanes, lanes);
    return VALUES + bytes;
}

EXPORT void by_hand_destroy(struct by_hand *s)
{
    if (s)
        free(s->slots);
    free(s);
}

EXPORT struct by_hand *by_hand_create(uint32_t lanes, uint32_t slots)
{
    struct by_hand *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->lanes = lanes;
    s->slot_bytes = (uint32_t)((sizeof(struct slot) + 4 * lanes + 63) / 64 * 64);
    s->slots = aligned_alloc(64, (size_t)slots * s->slot_bytes);
    if (!s->slots) {
        by_hand_destroy(s);
        return NULL;
    }
    memset(s->slots, 0, (size_t)slots * s->slot_bytes);
    return s;
}

/* Admit a job as the first one: counter row and generation 1, the slots from the first on, this node the root. */
EXPORT void by_hand_admit(struct by_hand *s, uint32_t number, uint32_t size, uint8_t fan_in)
{
    uint32_t everyone = (uint32_t)((UINT64_C(1) << fan_in) - 1);
    *FIND(s->jobs, number, 1) = (struct job){number, 1, 1, 0, size, 1, everyone, 0, fan_in};
}

EXPORT void by_hand_member(struct by_hand *s, uint32_t number, uint16_t rank, uint16_t port, const uint8_t *mac,
                           const uint8_t *ip, uint16_t udp_port)
{
    uint32_t from = number << 16 | port, to = number << 16 | (uint32_t)(rank + 1);
    *FIND(s->members, from, 1) = (struct member){from, 1, 1u << rank};
    struct receiver receiver = {.key = to, .used = 1, .first_rank = rank, .ranks = 1};
    memcpy(receiver.mac, mac, 6);
    memcpy(receiver.ip, ip, 4);
    p4_store16(receiver.port, udp_port);
    *FIND(s->receivers, to, 1) = receiver;
}

/* Process one frame; write the copies for replication ids 1 to `copies` behind each other. Returns their bytes. */
EXPORT uint32_t by_hand_process(struct by_hand *s, const uint8_t *frame, uint32_t length, uint16_t port,
                                uint16_t copies, uint8_t *out)
{
    uint8_t *to = out;
    const struct slot *slot = join(s, frame, length, port, out);
    for (uint16_t rid = 1; slot && rid <= copies; rid++) {
        if (rid > 1)
            memcpy(to, out, VALUES);
        to += address(s, slot, rid, 0, to);
    }
    return (uint32_t)(to - out);
}

/* Process all frames of a loop, whose numbers are PSNs; each copy goes to the same place, as in bench_pipeline. */
EXPORT void by_hand_run(struct by_hand *s, struct bench_loop *loop, uint16_t copies)
{
    static uint8_t out[9216];
    uint64_t start = now();
    for (uint32_t pass = 0; pass < loop->passes; pass++) {
        raise_numbers(loop);
        for (uint32_t n = 0; n < loop->frame_count; n++) {
            const struct bench_frame *frame = &loop->frame[n];
            const struct slot *slot = join(s, loop->frames + frame->offset, frame->length, frame->port, out);
            for (uint16_t rid = 1; slot && rid <= copies; rid++) {
                address(s, slot, rid, 0, out);
                __asm__ volatile("" : : "r"(out) : "memory");   /* each copy has a receiver */
            }
        }
    }
    loop->nanoseconds = now() - start;
}
