/* A core and its jobs, entries, and the memory that they share; tests/twins/fallback_store.py is the twin. */
#include "ina_fallback.h"

#include <stdlib.h>
#include <string.h>

enum { SPREAD_FACTOR = 2, INTERVAL_GROWTH = 4 };

/* ---- time and order ---- */

/* By how many PSNs `psn` comes after `other`; negative if before. */
int64_t fb_ahead(const struct fb_job *job, uint32_t psn, uint32_t other)
{
    int64_t limit = (int64_t)job->psn_limit;
    int64_t distance = ((int64_t)psn - other) % limit;
    if (distance < 0)
        distance += limit;
    return distance < limit / 2 ? distance : distance - limit;
}

int fb_is_stale(const struct fb_job *job, uint32_t psn)
{
    return job->window > 0 && job->has_front && fb_ahead(job, job->front, psn) >= 2 * (int64_t)job->window;
}

void fb_advance(struct fb_job *job, uint64_t psn)
{
    if (job->window == 0)
        return;
    uint32_t front = (uint32_t)(psn % job->psn_limit);
    if (!job->has_front || fb_ahead(job, front, job->front) > 0) {
        job->front = front;
        job->has_front = 1;
    }
}

int64_t fb_delay(const struct ina_fallback *core, const struct fb_job *job, uint32_t level)
{
    int64_t interval = SPREAD_FACTOR * job->spread;
    if (interval > INTERVAL_GROWTH * core->remind_ns)
        interval = INTERVAL_GROWTH * core->remind_ns;
    if (interval < core->remind_ns)
        interval = core->remind_ns;
    return interval > core->remind_max_ns >> level ? core->remind_max_ns : interval << level;
}

void fb_measure(const struct ina_fallback *core, struct fb_job *job, int64_t sample)
{
    sample = sample < core->remind_max_ns ? sample : core->remind_max_ns;
    sample = sample > 1 ? sample : 1;
    if (job->spread == 0)
        job->spread = sample;
    else if (sample < job->spread)
        job->spread -= (job->spread - sample) / 4;
    else
        job->spread += (sample - job->spread) / 16;
}

/* ---- lists of entries ---- */

uint32_t fb_index(const struct ina_fallback *core, const struct fb_entry *entry)
{
    return (uint32_t)(entry - core->entries);
}

static struct fb_list *list_of(struct fb_entry *entry)
{
    return entry->phase == FB_FINISHED ? &entry->job->finished : &entry->job->waiting[entry->level];
}

static void append(struct ina_fallback *core, struct fb_list *list, struct fb_entry *entry, int of)
{
    uint32_t index = fb_index(core, entry);
    entry->links[of] = (struct fb_link){FALLBACK_NONE, list->last};
    *(list->last == FALLBACK_NONE ? &list->first : &core->entries[list->last].links[of].next) = index;
    list->last = index;
}

static void unlink_from(struct ina_fallback *core, struct fb_list *list, struct fb_entry *entry, int of)
{
    struct fb_link link = entry->links[of];
    *(link.previous == FALLBACK_NONE ? &list->first : &core->entries[link.previous].links[of].next) = link.next;
    *(link.next == FALLBACK_NONE ? &list->last : &core->entries[link.next].links[of].previous) = link.previous;
}

/* Let an entry of whatever phase wait, unfinished, at the end of a level. */
void fb_wait(struct ina_fallback *core, struct fb_entry *entry, uint32_t level, int64_t now)
{
    unlink_from(core, list_of(entry), entry, FB_PLACE);
    if (entry->phase == FB_FINISHED) {
        entry->job->finished_count--;
        entry->phase = FB_REPAIRING;
    }
    entry->level = (uint8_t)level;
    entry->at = now;
    append(core, &entry->job->waiting[level], entry, FB_PLACE);
}

/* Send an entry's reminder soon: a missing contribution has arrived, and was dropped. */
void fb_hasten(struct ina_fallback *core, struct fb_entry *entry, int64_t now)
{
    if (now + fb_delay(core, entry->job, 0) < entry->at + fb_delay(core, entry->job, entry->level))
        fb_wait(core, entry, 0, now);
}

/* Note that something of an entry had to be dropped, for there was no room. */
void fb_starve(struct ina_fallback *core, struct fb_entry *entry)
{
    entry->starved = 1;
    core->starved = 1;
}

/* Send reminders for dropped contributions soon: there is room now. */
void fb_hasten_starved(struct ina_fallback *core, int64_t now)
{
    core->starved = 0;
    for (uint32_t i = 0; i < core->job_count; i++) {
        for (int level = FALLBACK_LEVELS - 1; level >= 0; level--) {
            uint32_t next;
            for (uint32_t index = core->jobs[i]->waiting[level].first; index != FALLBACK_NONE; index = next) {
                struct fb_entry *entry = &core->entries[index];
                next = entry->links[FB_PLACE].next;
                if (entry->starved)
                    fb_hasten(core, entry, now);
                entry->starved = 0;
            }
        }
    }
}

void fb_enlist_finished(struct ina_fallback *core, struct fb_entry *entry)
{
    unlink_from(core, list_of(entry), entry, FB_PLACE);
    entry->job->finished_count += entry->phase != FB_FINISHED;
    entry->phase = FB_FINISHED;
    entry->level = 0;
    append(core, &entry->job->finished, entry, FB_PLACE);
}

void fb_queue(struct ina_fallback *core, struct fb_entry *entry)
{
    if (!entry->queued)
        append(core, &core->results, entry, FB_QUEUE);
    entry->queued = 1;
}

void fb_unqueue(struct ina_fallback *core, struct fb_entry *entry)
{
    if (entry->queued)
        unlink_from(core, &core->results, entry, FB_QUEUE);
    entry->queued = 0;
}

/* ---- entries and pieces ---- */

static uint32_t *bucket_of(const struct ina_fallback *core, const struct fb_job *job, uint32_t psn)
{
    return &core->buckets[(psn + job->id * 0x9e3779b1u) & core->bucket_mask]; /* neighbours stay neighbours */
}

struct fb_entry *fb_find(struct ina_fallback *core, const struct fb_job *job, uint32_t psn)
{
    uint32_t index = *bucket_of(core, job, psn);
    while (index != FALLBACK_NONE) {
        struct fb_entry *entry = &core->entries[index];
        if (entry->psn == psn && entry->job == job)
            return entry;
        index = entry->hash_next;
    }
    return NULL;
}

/* A new entry, in no list's way: at the end of level 0. There is one: no more are in use than pieces. */
struct fb_entry *fb_new_entry(struct ina_fallback *core, struct fb_job *job, uint32_t psn)
{
    uint32_t index = core->free_entry;
    if (index == FALLBACK_NONE)
        index = core->fresh_entry++;
    else
        core->free_entry = core->entries[index].links[FB_PLACE].next;
    struct fb_entry *entry = &core->entries[index];
    uint32_t *bucket = bucket_of(core, job, psn);
    *entry = (struct fb_entry){.job = job, .psn = psn, .pieces = FALLBACK_NONE, .asked = -1, .reminded_at = -1,
                               .sent_at = -1, .serial = core->serial++, .hash_next = *bucket};
    *bucket = index;
    append(core, &job->waiting[0], entry, FB_PLACE);
    job->entry_count++;
    return entry;
}

uint32_t fb_piece_of(const struct ina_fallback *core, const struct fb_entry *entry, uint32_t key)
{
    uint32_t piece = entry->pieces;
    while (piece != FALLBACK_NONE && core->pieces[piece].key != key)
        piece = core->pieces[piece].next;
    return piece;
}

uint32_t fb_keep(struct ina_fallback *core, struct fb_entry *entry, uint32_t key, uint32_t bitmap)
{
    uint32_t piece = core->free_piece;
    if (piece == FALLBACK_NONE)
        piece = core->fresh_piece++;
    else
        core->free_piece = core->pieces[piece].next;
    core->pieces[piece] = (struct fb_piece){entry->pieces, key, bitmap};
    entry->pieces = piece;
    entry->piece_count++;
    entry->job->piece_count++;
    core->used++;
    return piece;
}

void fb_drop(struct ina_fallback *core, struct fb_entry *entry, uint32_t piece)
{
    uint32_t *link = &entry->pieces;
    while (*link != piece)
        link = &core->pieces[*link].next;
    *link = core->pieces[piece].next;
    core->pieces[piece].next = core->free_piece;
    core->free_piece = piece;
    entry->piece_count--;
    entry->job->piece_count--;
    core->used--;
}

void fb_drop_all(struct ina_fallback *core, struct fb_entry *entry)
{
    while (entry->pieces != FALLBACK_NONE)
        fb_drop(core, entry, entry->pieces);
}

void fb_forget(struct ina_fallback *core, struct fb_entry *entry, int reason)
{
    struct fb_job *job = entry->job;
    uint32_t index = fb_index(core, entry);
    uint32_t *link = bucket_of(core, job, entry->psn);
    while (*link != index)
        link = &core->entries[*link].hash_next;
    *link = entry->hash_next;
    fb_drop_all(core, entry);
    fb_unqueue(core, entry);
    unlink_from(core, list_of(entry), entry, FB_PLACE);
    job->entry_count--;
    job->finished_count -= entry->phase == FB_FINISHED;
    job->counters[reason]++;
    entry->job = NULL;
    entry->serial = core->serial++;
    entry->links[FB_PLACE].next = core->free_entry;
    core->free_entry = index;
}

/* ---- memory ---- */

static struct fb_job *largest_job(const struct ina_fallback *core)
{
    struct fb_job *largest = core->jobs[0];
    for (uint32_t i = 1; i < core->job_count; i++) {
        struct fb_job *job = core->jobs[i];
        if (job->piece_count > largest->piece_count
            || (job->piece_count == largest->piece_count && job->id < largest->id))
            largest = job;
    }
    return largest;
}

/* The unfinished entry to drop first: one that no rank lacks any more, else the one furthest ahead. */
static struct fb_entry *least_needed(const struct ina_fallback *core, const struct fb_job *job,
                                       const struct fb_entry *but)
{
    struct fb_entry *furthest = NULL;
    for (int level = FALLBACK_LEVELS - 1; level >= 0; level--) {
        struct fb_entry *entry;
        for (uint32_t index = job->waiting[level].first; index != FALLBACK_NONE; index = entry->links[FB_PLACE].next) {
            entry = &core->entries[index];
            if (fb_is_stale(job, entry->psn))
                return entry;
            if (entry != but && (furthest == NULL || fb_ahead(job, entry->psn, furthest->psn) > 0))
                furthest = entry;
        }
    }
    return furthest;
}

/* See to it that a piece is free for the entry `current` (NULL: a new one) of this PSN. Returns 0 if none can be. */
int fb_place(struct ina_fallback *core, struct fb_job *job, uint32_t psn, const struct fb_entry *current)
{
    if (core->used < core->capacity)
        return 1;
    struct fb_job *victim = job->piece_count < core->capacity / core->job_count ? largest_job(core) : job;
    struct fb_entry *entry;
    int reason = FB_FORGOTTEN;
    if (victim->finished.first != FALLBACK_NONE) {
        entry = &core->entries[victim->finished.first]; /* never the current one: it needs no more pieces */
    } else {
        entry = least_needed(core, victim, current);
        int stale = entry != NULL && fb_is_stale(victim, entry->psn);
        if (entry == NULL || (!stale && victim == job && fb_ahead(job, entry->psn, psn) <= 0)) {
            job->counters[FB_NO_ROOM]++;
            return 0;
        }
        reason = stale ? FB_EXPIRED : FB_FORGOTTEN;
    }
    fb_forget(core, entry, reason);
    return 1;
}

/* ---- contents of an entry ---- */

uint32_t fb_find_node(const struct fb_job *job, uint32_t id)
{
    for (uint32_t i = 0; i < job->node_count; i++)
        if (job->nodes[i].id == id)
            return i;
    return FALLBACK_NONE;
}

int fb_covered(const struct ina_fallback *core, const struct fb_entry *entry, uint32_t node)
{
    const struct fb_node *nodes = entry->job->nodes;
    while (node > 0) {
        uint32_t above = fb_piece_of(core, entry, nodes[node].parent);
        if (above != FALLBACK_NONE && core->pieces[above].bitmap & nodes[node].bit)
            return 1;
        node = nodes[node].parent;
    }
    return 0;
}

static void raw_bitmaps(const struct ina_fallback *core, const struct fb_entry *entry)
{
    const struct fb_job *job = entry->job;
    for (uint32_t i = job->node_count; i-- > 0;) {
        const struct fb_node *node = &job->nodes[i];
        job->have[i] = 0;
        for (uint32_t bit = 0; bit < node->fan_in; bit++) {
            int32_t child = node->children[bit];
            int inside = child < 0 ? job->have[-child] == job->nodes[-child].full
                                   : fb_piece_of(core, entry, (uint32_t)child) != FALLBACK_NONE;
            job->have[i] |= (uint32_t)inside << bit;
        }
    }
}

/* What an unfinished entry has, for each node, into job->have. */
void fb_bitmaps(const struct ina_fallback *core, const struct fb_entry *entry)
{
    const struct fb_job *job = entry->job;
    if (entry->phase == FB_REPAIRING) {
        raw_bitmaps(core, entry);
        return;
    }
    for (uint32_t i = 0; i < job->node_count; i++) {
        const struct fb_node *node = &job->nodes[i];
        uint32_t piece = fb_piece_of(core, entry, i);
        job->have[i] = piece == FALLBACK_NONE ? 0 : core->pieces[piece].bitmap;
        if (i > 0 && job->have[node->parent] & node->bit)
            job->have[i] = node->full;
    }
}

/* ---- the life of a core and of its jobs ---- */

static const struct fb_list EMPTY = {FALLBACK_NONE, FALLBACK_NONE};

struct ina_fallback *ina_fallback_new(uint32_t lanes, uint32_t capacity, uint32_t prefix, const uint8_t *long_prefix,
                                      const uint8_t *short_prefix, int64_t remind_ns, int64_t remind_max_ns,
                                      int64_t forget_ns)
{
    struct ina_fallback *core = calloc(1, sizeof *core);
    if (core == NULL)
        return NULL;
    uint32_t buckets = 1;
    while (buckets < 2 * capacity)
        buckets *= 2;
    core->lanes = lanes;
    core->capacity = capacity;
    core->prefix = prefix;
    core->remind_ns = remind_ns;
    core->remind_max_ns = remind_max_ns;
    core->forget_ns = forget_ns;
    core->bucket_mask = buckets - 1;
    core->free_entry = core->free_piece = FALLBACK_NONE;
    core->results = EMPTY;
    memcpy(core->long_prefix, long_prefix, prefix);
    memcpy(core->short_prefix, short_prefix, prefix);
    core->entries = calloc(capacity, sizeof *core->entries); /* not touched before it is used: no memory until then */
    core->pieces = calloc(capacity, sizeof *core->pieces);
    core->values = malloc((size_t)capacity * lanes * sizeof *core->values);
    core->buckets = malloc(buckets * sizeof *core->buckets);
    if (core->entries == NULL || core->pieces == NULL || core->values == NULL || core->buckets == NULL) {
        ina_fallback_free(core);
        return NULL;
    }
    memset(core->buckets, 0xff, buckets * sizeof *core->buckets);
    return core;
}

static void free_job(struct fb_job *job)
{
    free(job->have);
    free(job->ordered);
    free(job);
}

void ina_fallback_free(struct ina_fallback *core)
{
    for (uint32_t i = 0; i < core->job_count; i++)
        free_job(core->jobs[i]);
    free(core->jobs);
    free(core->entries);
    free(core->pieces);
    free(core->values);
    free(core->buckets);
    free(core);
}

/* `nodes`: for each node struct fb_node. Returns 0 if there is no memory. */
int ina_fallback_add_job(struct ina_fallback *core, uint32_t id, uint32_t epoch, uint32_t ranks, uint32_t window,
                         uint64_t psn_limit, uint32_t node_count, const int32_t *nodes)
{
    struct fb_job **jobs = realloc(core->jobs, (core->job_count + 1) * sizeof(struct fb_job *));
    if (jobs == NULL)
        return 0;
    core->jobs = jobs;
    struct fb_job *job = calloc(1, sizeof *job + node_count * sizeof *job->nodes);
    if (job == NULL)
        return 0;
    job->have = calloc(node_count, sizeof *job->have);
    job->ordered = calloc(ranks, sizeof *job->ordered);
    if (job->have == NULL || job->ordered == NULL) {
        free_job(job);
        return 0;
    }
    job->id = id;
    job->epoch = epoch;
    job->ranks = ranks;
    job->window = window;
    job->psn_limit = psn_limit;
    job->finished = EMPTY;
    for (int level = 0; level < FALLBACK_LEVELS; level++)
        job->waiting[level] = EMPTY;
    job->node_count = node_count;
    memcpy(job->nodes, nodes, node_count * sizeof *job->nodes);
    core->jobs[core->job_count++] = job;
    core->by_id[id] = job;
    return 1;
}

void ina_fallback_remove_job(struct ina_fallback *core, uint32_t id)
{
    struct fb_job *job = core->by_id[id];
    for (int level = 0; level < FALLBACK_LEVELS; level++)
        while (job->waiting[level].first != FALLBACK_NONE)
            fb_forget(core, &core->entries[job->waiting[level].first], FB_FORGOTTEN);
    while (job->finished.first != FALLBACK_NONE)
        fb_forget(core, &core->entries[job->finished.first], FB_FORGOTTEN);
    uint32_t place = 0;
    while (core->jobs[place] != job)
        place++;
    core->job_count--;
    memmove(core->jobs + place, core->jobs + place + 1, (core->job_count - place) * sizeof(struct fb_job *));
    core->by_id[id] = NULL;
    free_job(job);
}

/* `out`: the counters, then entries, unfinished ones, pieces. `job` -1: the counters of no job. */
void ina_fallback_counters(const struct ina_fallback *core, int64_t id, uint64_t *out)
{
    if (id < 0) {
        memcpy(out, core->counters, sizeof core->counters);
        return;
    }
    const struct fb_job *job = core->by_id[id];
    memcpy(out, job->counters, sizeof job->counters);
    out[FB_COUNTERS] = job->entry_count;
    out[FB_COUNTERS + 1] = job->entry_count - job->finished_count;
    out[FB_COUNTERS + 2] = job->piece_count;
}
