/* What the packets that reach the fallback server mean; tests/twins/fallback_core.py is the twin. */
#include "ina_fallback.h"
#include "ina_vector.h"

enum { INFINITE = 0x7f800000, QUIET_NAN = 0x7fc00000 };         /* bits of a float32 */

struct header {                         /* of the packet being processed */
    uint32_t kind, flags, job, psn, bitmap, fan_in, priority, exponent, epoch, valid, lanes, tag, node, target;
    uint32_t index;                     /* of the node */
    int32_t child;                      /* a contribution of one bit: whose */
    const uint8_t *values;              /* NULL: without lanes, as zeros */
};

/* ---- sums of lanes: kept in the byte order of the machine, on the wire they are big endian ---- */

/* A sum left the range if its sign is neither addend's. */
VECTORIZED static int add_lanes(int32_t *restrict to, const uint8_t *restrict wire, uint32_t lanes)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        uint32_t a = (uint32_t)to[i], b = load_lane(wire, i), sum = a + b;
        left |= (sum ^ a) & (sum ^ b);
        to[i] = (int32_t)sum;
    }
    return (int)(left >> 31);
}

VECTORIZED static int add(int32_t *restrict to, const int32_t *restrict from, uint32_t lanes)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        uint32_t a = (uint32_t)to[i], b = (uint32_t)from[i], sum = a + b;
        left |= (sum ^ a) & (sum ^ b);
        to[i] = (int32_t)sum;
    }
    return (int)(left >> 31);
}

/* Add raw values in order, rounding once. `to` may be one of the inputs. Returns 0 if an int32 sum leaves the range. */
static int sum_raw(int32_t *to, const int32_t *const *ordered, uint32_t ranks, uint32_t lanes, int is_int)
{
    if (is_int) {
        int fits = ina_local_sum_i32(to, ordered, ranks, lanes) < 0;
        if (!fits)
            memset(to, 0, lanes * sizeof *to);
        return fits;
    }
    ina_local_sum_f32((float *)to, (const float *const *)ordered, ranks, lanes, 1.0);
    for (uint32_t i = 0; i < lanes; i++)
        if ((to[i] & INT32_MAX) > INFINITE)
            to[i] = QUIET_NAN;          /* whichever it was: that depends on the machine */
    return 1;
}

/* ---- entries ---- */

/* Whether a frame is UDP over plain IPv4 from or to the INA port: nothing else is for us. */
static int is_ours(const uint8_t *frame)
{
    return is_udp(frame) && (udp_source(frame) == INA_UDP_PORT || udp_destination(frame) == INA_UDP_PORT);
}

static void read_values(const struct ina_fallback *core, uint32_t piece, const struct header *header)
{
    if (header->values == NULL)
        memset(fb_values(core, piece), 0, core->lanes * sizeof(int32_t));
    else
        ina_swap(header->values, fb_values(core, piece), core->lanes);
}

static int can_be_repaired(const struct fb_entry *entry)
{
    return (entry->flags & (FLAG_OVERFLOW | FLAG_RAW | FLAG_DISAGREE)) == FLAG_OVERFLOW;
}

/* Keep the piece with the result, and queue it for all workers; there is room for others now. */
static void finish(struct ina_fallback *core, struct fb_entry *entry, int64_t now)
{
    struct fb_job *job = entry->job;
    while (core->pieces[entry->pieces].next != FALLBACK_NONE)
        fb_drop(core, entry, core->pieces[entry->pieces].next);
    core->pieces[entry->pieces].key = 0;
    fb_enlist_finished(core, entry);
    if (entry->flags & FLAG_DISAGREE)
        job->counters[FB_DISAGREEMENTS]++;
    else
        fb_advance(job, (uint64_t)entry->psn + job->window);
    job->counters[FB_RESULTS]++;
    fb_queue(core, entry);
    while (job->finished.first != fb_index(core, entry)
           && fb_is_stale(job, core->entries[job->finished.first].psn))
        fb_forget(core, &core->entries[job->finished.first], FB_EXPIRED);
    if (core->starved)
        fb_hasten_starved(core, now);
}

/* Queue a result, or under repair the notice of the overflow, unless that was sent just now. */
static void reply(struct ina_fallback *core, struct fb_entry *entry, int64_t now)
{
    int recently = entry->sent_at >= 0 && now - entry->sent_at < core->remind_ns;
    entry->job->counters[FB_LATE]++;
    if (recently || entry->queued)
        return;
    fb_queue(core, entry);
    entry->job->counters[FB_REPLAYS]++;
}

static void ask(struct ina_fallback *core, struct fb_entry *entry, const struct header *header)
{
    if (!(header->flags & FLAG_QUERY) || entry->asked == (int32_t)header->index
        || core->status_count == FALLBACK_STATUS_QUEUE)
        return;
    uint32_t place = (core->status_head + core->status_count++) % FALLBACK_STATUS_QUEUE;
    core->statuses[place] = (struct fb_status){fb_index(core, entry), entry->serial, header->index};
    entry->asked = (int32_t)header->index;
}

static void note(struct fb_entry *entry, const struct header *header, uint32_t flags)
{
    entry->flags |= (uint8_t)(header->flags & flags);
    if (header->exponent > entry->exponent)
        entry->exponent = (uint8_t)header->exponent;
    if (header->priority > entry->priority)
        entry->priority = (uint8_t)header->priority;
    if (header->valid < entry->valid)
        entry->valid = (uint16_t)header->valid;
    entry->job->counters[FB_MERGED]++;
}

/* ---- raw values ---- */

/* Add the raw values up if all are in. */
static void settle_raw(struct ina_fallback *core, struct fb_entry *entry, const struct header *header, int64_t now)
{
    struct fb_job *job = entry->job;
    if (entry->piece_count < job->ranks) {
        ask(core, entry, header);
        return;
    }
    for (uint32_t piece = entry->pieces; piece != FALLBACK_NONE; piece = core->pieces[piece].next)
        job->ordered[core->pieces[piece].key] = fb_values(core, piece);
    int32_t *result = fb_values(core, entry->pieces);
    entry->flags |= FLAG_RAW;
    if (!sum_raw(result, job->ordered, job->ranks, core->lanes, entry->valid & VALID_INT32))
        entry->flags |= FLAG_OVERFLOW;
    job->counters[FB_REPAIRS]++;
    finish(core, entry, now);
}

/* Forget the sums: they are wrong, and raw values are on their way. */
static void start_repair(struct ina_fallback *core, struct fb_entry *entry, const struct header *header, int64_t now)
{
    fb_drop_all(core, entry);
    fb_unqueue(core, entry);
    fb_wait(core, entry, 0, now);
    entry->phase = FB_REPAIRING;
    entry->flags &= FB_MARKS;
    entry->valid = (uint16_t)header->valid;
    entry->first_at = now;
    entry->sent_at = entry->reminded_at = -1;
}

/* Keep a rank's raw values. */
static void take_raw(struct ina_fallback *core, struct fb_entry *entry, const struct header *header, int64_t now)
{
    struct fb_job *job = entry->job;
    uint32_t rank = (uint32_t)header->child;
    if ((header->valid ^ entry->valid) & VALID_INT32) {
        job->counters[FB_BAD_LANES]++;
        return;
    }
    if (fb_piece_of(core, entry, rank) != FALLBACK_NONE) {
        job->counters[FB_OVERLAPS]++;
        ask(core, entry, header);
        return;
    }
    if (!fb_place(core, job, header->psn, entry)) {
        fb_starve(core, entry);
        return;
    }
    read_values(core, fb_keep(core, entry, rank, 0), header);
    note(entry, header, FB_MARKS);
    fb_wait(core, entry, 0, now);
    settle_raw(core, entry, header, now);
}

/* ---- sums ---- */

/* Drop the sums of nodes below the packet's that are in its bitmap. */
static void drop_below(struct ina_fallback *core, struct fb_entry *entry, const struct header *header)
{
    const struct fb_node *nodes = entry->job->nodes;
    uint32_t next;
    for (uint32_t piece = entry->pieces; piece != FALLBACK_NONE; piece = next) {
        uint32_t node = core->pieces[piece].key;
        next = core->pieces[piece].next;
        for (; node > 0; node = nodes[node].parent) {
            if (nodes[node].parent == header->index && nodes[node].bit & header->bitmap) {
                fb_drop(core, entry, piece);
                break;
            }
        }
    }
}

/* Pass a sum that is full up the tree; answer a query if the entry is still not complete. */
static void settle_sum(struct ina_fallback *core, struct fb_entry *entry, const struct header *header, int64_t now)
{
    struct fb_job *job = entry->job;
    uint32_t at = header->index;
    uint32_t piece = fb_piece_of(core, entry, at);
    while (at > 0 && core->pieces[piece].bitmap == job->nodes[at].full) {
        const struct fb_node *node = &job->nodes[at];
        uint32_t above = fb_piece_of(core, entry, node->parent);
        if (above == FALLBACK_NONE) {
            core->pieces[piece].key = node->parent;
            core->pieces[piece].bitmap = node->bit;
        } else {
            if (add(fb_values(core, above), fb_values(core, piece), core->lanes))
                entry->flags |= FLAG_OVERFLOW;
            core->pieces[above].bitmap |= node->bit;
            fb_drop(core, entry, piece);
            piece = above;
        }
        at = node->parent;
    }
    if (at > 0 || core->pieces[piece].bitmap != job->nodes[0].full) {
        ask(core, entry, header);
        return;
    }
    int surprised = entry->reminded_at < 0 || now - entry->reminded_at > core->remind_ns;
    if (surprised && !(header->flags & FLAG_RESEND))
        fb_measure(core, job, now - entry->first_at);
    finish(core, entry, now);           /* nothing but the root's sum is left */
}

/* Merge a sum into an entry, if they have no contribution in common. */
static void take_sum(struct ina_fallback *core, struct fb_entry *entry, const struct header *header, int64_t now)
{
    struct fb_job *job = entry->job;
    uint32_t piece = fb_piece_of(core, entry, header->index);
    uint32_t held = piece == FALLBACK_NONE ? 0 : core->pieces[piece].bitmap;
    uint32_t common = held & header->bitmap;
    int contains = common != 0 && common == held && common != header->bitmap;
    int covered = fb_covered(core, entry, header->index);
    if ((common != 0 && !contains) || covered) {
        job->counters[FB_OVERLAPS]++;
        if (!covered && header->bitmap & ~held)
            fb_hasten(core, entry, now);
        ask(core, entry, header);
        return;
    }
    drop_below(core, entry, header);
    if (piece == FALLBACK_NONE) {
        if (!fb_place(core, job, header->psn, entry)) {
            fb_starve(core, entry);
            return;
        }
        piece = fb_keep(core, entry, header->index, 0);
        read_values(core, piece, header);
    } else if (contains) {
        read_values(core, piece, header);
    } else if (header->values != NULL && add_lanes(fb_values(core, piece), header->values, core->lanes)) {
        entry->flags |= FLAG_OVERFLOW;
    }
    core->pieces[piece].bitmap |= header->bitmap;
    note(entry, header, FB_STICKY);
    fb_wait(core, entry, 0, now);
    settle_sum(core, entry, header, now);
}

/* ---- packets ---- */

/* Take in a partial of a PSN of which nothing is known. */
static void take_first(struct ina_fallback *core, struct fb_job *job, const struct header *header, int64_t now)
{
    if (!fb_place(core, job, header->psn, NULL))
        return;
    int is_raw = (header->flags & FLAG_RAW) != 0;
    struct fb_entry *entry = fb_new_entry(core, job, header->psn);
    uint32_t piece = fb_keep(core, entry, is_raw ? (uint32_t)header->child : header->index, header->bitmap);
    read_values(core, piece, header);
    entry->tag = header->tag;
    entry->target = (uint16_t)header->target;
    entry->valid = (uint16_t)header->valid;
    entry->phase = is_raw ? FB_REPAIRING : FB_SUMMING;
    entry->first_at = entry->heard_at = now;
    note(entry, header, is_raw ? FB_MARKS | FLAG_DISAGREE : FB_STICKY);
    fb_wait(core, entry, 0, now);
    if (header->flags & FLAG_DISAGREE)
        finish(core, entry, now);
    else if (is_raw)
        settle_raw(core, entry, header, now);
    else
        settle_sum(core, entry, header, now);
}

static void take_partial(struct ina_fallback *core, struct fb_job *job, const struct header *header, int64_t now)
{
    int is_raw = (header->flags & FLAG_RAW) != 0;
    struct fb_entry *entry = fb_find(core, job, header->psn);
    if (entry == NULL) {
        take_first(core, job, header, now);
        return;
    }
    entry->heard_at = now;
    if (entry->phase == FB_FINISHED && !(is_raw && can_be_repaired(entry))) {
        reply(core, entry, now);
    } else if (header->tag != entry->tag || header->flags & FLAG_DISAGREE) {
        entry->flags |= FLAG_DISAGREE;
        finish(core, entry, now);
    } else if (is_raw) {
        if (entry->phase != FB_REPAIRING)
            start_repair(core, entry, header, now);
        take_raw(core, entry, header, now);
    } else if (entry->phase == FB_REPAIRING) {
        reply(core, entry, now);
    } else {
        take_sum(core, entry, header, now);
    }
}

/* Finish an entry with the answer of somebody who has the result. A worker that knows only that there is one sends no lanes;
   those of a result without lanes are all 0 where a switch sends it, and it is then not sent again. */
static void take_result(struct ina_fallback *core, struct fb_job *job, const struct header *header, int64_t now)
{
    int only_tells = header->lanes == 0 && header->flags & FLAG_RESEND;
    struct fb_entry *entry = fb_find(core, job, header->psn);
    int is_final = !(header->flags & FLAG_OVERFLOW) || header->flags & FLAG_RAW;
    int wanted = entry != NULL && !only_tells
                 && (entry->phase == FB_SUMMING || (entry->phase == FB_REPAIRING && is_final)
                     || (entry->phase == FB_FINISHED && is_final && can_be_repaired(entry)));
    if (!wanted) {
        job->counters[FB_UNASKED]++;
        fb_advance(job, (uint64_t)header->psn + job->window);
        return;
    }
    uint32_t kept = entry->flags & (FLAG_BYPASS | FLAG_DISAGREE); /* what counts for all ranks is as in the answer */
    entry->heard_at = now;
    entry->priority = (uint8_t)header->priority;
    entry->exponent = (uint8_t)header->exponent;
    entry->valid = (uint16_t)header->valid;
    entry->flags = (uint8_t)((header->flags & ~(uint32_t)(FLAG_RESEND | FLAG_QUERY | FLAG_BYPASS)) | kept);
    if (header->tag != entry->tag)
        entry->flags |= FLAG_DISAGREE;
    read_values(core, entry->pieces, header);
    job->counters[FB_ANSWERS]++;
    finish(core, entry, now);
}

/* Why a packet of a known job cannot be used, -1: it can. Completes the header. */
static int refusal(const struct ina_fallback *core, const struct fb_job *job, struct header *header, int64_t bytes)
{
    int is_raw = (header->flags & FLAG_RAW) != 0;
    if (header->epoch != job->epoch)
        return FB_WRONG_EPOCH;
    if (header->lanes == 0 && !is_raw)
        header->values = NULL;
    else if (header->lanes != core->lanes)
        return FB_BAD_LANES;
    if ((header->valid & ~(uint32_t)VALID_INT32) > core->lanes || (header->valid & VALID_INT32 && !is_raw))
        return FB_BAD_LANES;
    if (bytes < 4 * (int64_t)header->lanes)
        return FB_BAD_LENGTH;
    header->index = fb_find_node(job, header->node);
    if (header->index == FALLBACK_NONE)
        return FB_WRONG_NODE;
    if (header->kind == KIND_RESULT)
        return -1;
    const struct fb_node *node = &job->nodes[header->index];
    if (header->bitmap == 0 || header->bitmap & ~node->full)
        return FB_FOREIGN_BITS;
    header->child = node->children[__builtin_ctz(header->bitmap)];
    if (is_raw && (header->bitmap & (header->bitmap - 1) || header->child < 0))
        return FB_FOREIGN_BITS;
    if (header->fan_in != node->fan_in)
        return FB_WRONG_FAN_IN;
    return fb_is_stale(job, header->psn) ? FB_STALE : -1;
}

/* Why a packet is of no job, -1: it is. */
static int strangeness(const struct ina_fallback *core, const uint8_t *packet, int64_t bytes)
{
    const uint8_t *at = packet + core->prefix;
    if (bytes < core->prefix + INA_BYTES)
        return FB_BAD_LENGTH;
    if (core->prefix && !is_ours(packet))
        return FB_FOREIGN;
    if (at[AT(version_kind)] >> 4 != INA_VERSION)
        return FB_BAD_VERSION;
    uint32_t kind = at[AT(version_kind)] & 0x0f;
    if (kind != KIND_PARTIAL && kind != KIND_RESULT)
        return FB_BAD_KIND;
    return core->by_id[load16(at + AT(job))] == NULL ? FB_UNKNOWN_JOB : -1;
}

static void take_packet(struct ina_fallback *core, const uint8_t *packet, int64_t bytes, int64_t now)
{
    const uint8_t *at = packet + core->prefix;
    int64_t start = core->prefix + INA_BYTES;
    int reason = strangeness(core, packet, bytes);
    if (reason >= 0) {
        core->counters[reason]++;
        return;
    }
    struct header header = {
        .kind = at[AT(version_kind)] & 0x0f, .flags = at[AT(flags)], .job = load16(at + AT(job)),
        .psn = load32(at + AT(psn)), .bitmap = load32(at + AT(bitmap)), .fan_in = at[AT(fan_in)],
        .priority = at[AT(priority)], .exponent = at[AT(exponent)], .epoch = at[AT(epoch)],
        .valid = load16(at + AT(valid)), .lanes = load16(at + AT(lanes)), .tag = load32(at + AT(tag)),
        .node = load16(at + AT(node)), .target = load16(at + AT(target)), .child = -1, .values = packet + start,
    };
    struct fb_job *job = core->by_id[header.job];
    job->counters[FB_PACKETS]++;
    reason = refusal(core, job, &header, bytes - start);
    if (reason >= 0) {
        job->counters[reason]++;
        return;
    }
    if (header.kind == KIND_RESULT) {
        take_result(core, job, &header, now);
        return;
    }
    job->counters[FB_GRADIENT_BYTES] += 4 * (uint64_t)header.lanes;
    fb_advance(job, header.psn);
    if ((header.flags & FLAGS_OF_ANSWER) == FLAGS_OF_ANSWER) {
        header.flags &= ~(uint32_t)FLAG_BYPASS;     /* it shows nothing about the sum here */
        if (fb_find(core, job, header.psn) == NULL) {
            /* finished and forgotten since we asked: begun anew it could take the memory of a sum that a rank lacks.
               A rank that lacks this one sends again, and not as an answer */
            job->counters[FB_UNASKED]++;
            return;
        }
    }
    take_partial(core, job, &header, now);
}

void ina_fallback_absorb(struct ina_fallback *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now)
{
    for (int64_t at = 0; at < bytes; at += segment)
        take_packet(core, data + at, bytes - at < segment ? bytes - at : segment, now);
}
