/* What the fallback server sends; tests/twins/fallback_packets.py is the twin. */
#include "ina_fallback.h"

#include <string.h>

/* Whom a reminder is for: the worker that it asks, or a rank behind the switch that may hold part of the sum. All of them, if
   it asks several workers. */
static uint32_t asked_rank(const struct fb_job *job, uint32_t node, uint32_t missing)
{
    int32_t child = job->nodes[node].children[__builtin_ctz(missing)];
    uint32_t workers = 0;
    for (; missing; missing &= missing - 1) {
        int32_t lacking = job->nodes[node].children[__builtin_ctz(missing)];
        if (lacking >= 0) {
            child = lacking;
            workers++;
        }
    }
    while (child < 0)
        child = job->nodes[-child].children[0];
    return workers > 1 ? TARGET_ALL : (uint32_t)child;
}

static void write_header(uint8_t *at, const struct fb_entry *entry, uint32_t kind, uint32_t node, uint32_t bitmap,
                         uint32_t flags)
{
    const struct fb_job *job = entry->job;
    at[AT(version_kind)] = (uint8_t)(INA_VERSION << 4 | kind);
    at[AT(flags)] = (uint8_t)flags;
    store16(at + AT(job), job->id);
    store32(at + AT(psn), entry->psn);
    store32(at + AT(bitmap), bitmap);
    at[AT(fan_in)] = (uint8_t)job->nodes[node].fan_in;
    at[AT(priority)] = entry->priority;
    at[AT(exponent)] = entry->exponent;
    at[AT(epoch)] = (uint8_t)job->epoch;
    store32(at + AT(valid), 0);             /* valid, lanes */
    store32(at + AT(tag), entry->tag);
    store16(at + AT(node), job->nodes[node].id);
    store16(at + AT(target), kind == KIND_REMINDER ? asked_rank(job, node, bitmap) : entry->target);
}

static void write_result(const struct ina_fallback *core, uint8_t *packet, const struct fb_entry *entry)
{
    uint8_t *at = packet + core->prefix;
    int is_notice = entry->phase == FB_REPAIRING; /* contributors of a sum must send raw values */
    uint32_t flags = entry->flags | (is_notice ? FLAG_OVERFLOW : 0);
    memcpy(packet, core->long_prefix, core->prefix);
    write_header(at, entry, KIND_RESULT, 0, entry->job->nodes[0].full, flags);
    store16(at + AT(valid), is_notice ? entry->valid & ~(uint32_t)VALID_INT32 : entry->valid);
    store16(at + AT(lanes), core->lanes);
    if (is_notice || flags & FLAG_DISAGREE)
        memset(at + INA_BYTES, 0, 4 * (size_t)core->lanes);
    else
        ina_swap(fb_values(core, entry->pieces), at + INA_BYTES, core->lanes);
}

static void write_short(const struct ina_fallback *core, uint8_t *packet, const struct fb_entry *entry, uint32_t kind,
                        uint32_t node, uint32_t bitmap, uint32_t flags)
{
    memcpy(packet, core->short_prefix, core->prefix);
    write_header(packet + core->prefix, entry, kind, node, bitmap, flags);
}

static int64_t emit_results(struct ina_fallback *core, uint8_t *out, int64_t room, int64_t size, int64_t now)
{
    int64_t count = 0;
    while (count < room && core->results.first != FALLBACK_NONE) {
        struct fb_entry *entry = &core->entries[core->results.first];
        fb_unqueue(core, entry);
        write_result(core, out + count++ * size, entry);
        entry->sent_at = now;
    }
    return count;
}

static int64_t emit_statuses(struct ina_fallback *core, uint8_t *out, int64_t room, int64_t size)
{
    int64_t count = 0;
    while (count < room && core->status_count > 0) {
        const struct fb_status *status = &core->statuses[core->status_head];
        struct fb_entry *entry = &core->entries[status->entry];
        core->status_head = (core->status_head + 1) % FALLBACK_STATUS_QUEUE;
        core->status_count--;
        if (entry->job == NULL || entry->serial != status->serial)
            continue;                   /* forgotten meanwhile */
        entry->asked = -1;
        if (entry->phase == FB_FINISHED)
            continue;
        fb_bitmaps(core, entry);
        write_short(core, out + count++ * size, entry, KIND_STATUS, status->node, entry->job->have[status->node], 0);
        entry->job->counters[FB_STATUSES]++;
    }
    return count;
}

/* Write an entry's reminders: a packet for each incomplete node, as many as fit. */
static int64_t remind(struct ina_fallback *core, uint8_t *out, int64_t room, int64_t size,
                      const struct fb_entry *entry)
{
    struct fb_job *job = entry->job;
    uint32_t flags = entry->phase == FB_REPAIRING ? FLAG_RAW : 0;
    int64_t count = 0;
    for (uint32_t node = 0; node < job->node_count && count < room; node++) {
        uint32_t missing = job->nodes[node].full & ~job->have[node];
        if (missing) {
            write_short(core, out + count++ * size, entry, KIND_REMINDER, node, missing, flags);
            job->counters[FB_REMINDERS]++;
        }
    }
    return count;
}

static int64_t incomplete_nodes(const struct fb_job *job)
{
    int64_t count = 0;
    for (uint32_t node = 0; node < job->node_count; node++)
        count += job->have[node] != job->nodes[node].full;
    return count;
}

static int64_t emit_reminders(struct ina_fallback *core, uint8_t *out, int64_t room, int64_t size, int64_t now)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < core->job_count; i++) {
        struct fb_job *job = core->jobs[i];
        for (uint32_t level = 0; level < FALLBACK_LEVELS; level++) {
            while (job->waiting[level].first != FALLBACK_NONE) {
                struct fb_entry *entry = &core->entries[job->waiting[level].first];
                if (now - entry->at < fb_delay(core, job, level))
                    break;
                if (fb_is_stale(job, entry->psn)) {
                    fb_forget(core, entry, FB_EXPIRED);
                    continue;
                }
                if (now - entry->heard_at >= core->forget_ns) {
                    fb_forget(core, entry, FB_FORGOTTEN);
                    continue;
                }
                fb_bitmaps(core, entry);
                if (count > 0 && count + incomplete_nodes(job) > room)
                    return count;
                count += remind(core, out + count * size, room - count, size, entry);
                entry->reminded_at = now;
                fb_wait(core, entry, level + 1 < FALLBACK_LEVELS ? level + 1 : level, now);
            }
        }
    }
    return count;
}

static int64_t room_for(int64_t bytes, int64_t size)
{
    return bytes / size < FALLBACK_BATCH ? bytes / size : FALLBACK_BATCH;
}

int64_t ina_fallback_emit(struct ina_fallback *core, uint8_t *out, int64_t bytes, int64_t now, int64_t *packet_bytes)
{
    int64_t size = core->prefix + INA_BYTES + 4 * (int64_t)core->lanes;
    *packet_bytes = size;
    int64_t count = emit_results(core, out, room_for(bytes, size), size, now);
    if (count > 0)
        return count;
    size = core->prefix + INA_BYTES;
    *packet_bytes = size;
    count = emit_statuses(core, out, room_for(bytes, size), size);
    return count > 0 ? count : emit_reminders(core, out, room_for(bytes, size), size, now);
}

int64_t ina_fallback_next_timeout(const struct ina_fallback *core)
{
    int64_t due = INT64_MAX;
    for (uint32_t i = 0; i < core->job_count; i++) {
        const struct fb_job *job = core->jobs[i];
        for (uint32_t level = 0; level < FALLBACK_LEVELS; level++) {
            if (job->waiting[level].first == FALLBACK_NONE)
                continue;
            int64_t at = core->entries[job->waiting[level].first].at + fb_delay(core, job, level);
            due = at < due ? at : due;
        }
    }
    return due;
}
