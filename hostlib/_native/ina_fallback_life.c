/* The life of a fallback server's core and of its jobs. */
#include "ina_fallback.h"

#include <stdlib.h>
#include <string.h>

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
