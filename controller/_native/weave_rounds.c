/* Lengths of rounds by the kinds of a group's members: a hash table with open addressing. */
#include "weave.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct weave_composition of; /* size 0: free */
    int counted;                 /* a group of a draft, or a part of one, was of this composition */
    double length_s;             /* NaN: not known yet */
};

struct weave_rounds {
    int32_t members;
    int64_t used, room, counted;
    int empty_counted;
    struct entry *entries;
    int32_t missing_count;
    struct weave_composition missing[WEAVE_MISSING];
};

struct weave_rounds *weave_rounds_new(int32_t members)
{
    struct weave_rounds *rounds = calloc(1, sizeof *rounds);
    if (!rounds)
        return NULL;
    rounds->members = members;
    rounds->room = 256;
    rounds->entries = calloc((size_t)rounds->room, sizeof *rounds->entries);
    if (!rounds->entries) {
        free(rounds);
        return NULL;
    }
    return rounds;
}

void weave_rounds_free(struct weave_rounds *rounds)
{
    if (rounds)
        free(rounds->entries);
    free(rounds);
}

static uint64_t hash(const struct weave_composition *of)
{
    uint64_t found = (uint64_t)of->size;
    for (int at = 0; at < WEAVE_MEMBERS; at++)
        found = (found ^ (uint32_t)of->kinds[at]) * 0x9e3779b97f4a7c15u;
    return found ^ found >> 32;
}

/* Return the entry of a composition, or the free one where it would be. */
static struct entry *seek(const struct weave_rounds *rounds, const struct weave_composition *of)
{
    uint64_t mask = (uint64_t)rounds->room - 1;
    for (uint64_t at = hash(of) & mask;; at = (at + 1) & mask) {
        struct entry *entry = &rounds->entries[at];
        if (!entry->of.size || memcmp(&entry->of, of, sizeof *of) == 0)
            return entry;
    }
}

static int grow(struct weave_rounds *rounds)
{
    struct entry *before = rounds->entries;
    int64_t room = rounds->room;
    struct entry *wider = calloc((size_t)room * 2, sizeof *wider);
    if (!wider)
        return WEAVE_NO_MEMORY;
    rounds->entries = wider;
    rounds->room = room * 2;
    for (int64_t at = 0; at < room; at++)
        if (before[at].of.size)
            *seek(rounds, &before[at].of) = before[at];
    free(before);
    return WEAVE_DONE;
}

static struct entry *add(struct weave_rounds *rounds, const struct weave_composition *of)
{
    struct entry *entry = seek(rounds, of);
    if (entry->of.size)
        return entry;
    if (rounds->used * 2 >= rounds->room) {
        if (grow(rounds))
            return NULL;
        entry = seek(rounds, of);
    }
    *entry = (struct entry){ .of = *of, .length_s = NAN };
    rounds->used++;
    return entry;
}

int weave_rounds_put(struct weave_rounds *rounds, const int32_t *kinds, int32_t size, double length_s)
{
    struct weave_composition of = { .size = size };
    for (int at = 0; at < WEAVE_MEMBERS; at++)
        of.kinds[at] = at < size ? kinds[at] : -1;
    struct entry *entry = add(rounds, &of);
    if (!entry)
        return WEAVE_NO_MEMORY;
    entry->length_s = length_s;
    return WEAVE_DONE;
}

int64_t weave_rounds_counted(const struct weave_rounds *rounds) { return rounds->counted; }

int32_t weave_rounds_missing(const struct weave_rounds *rounds, int32_t *kinds)
{
    for (int32_t at = 0; at < rounds->missing_count; at++)
        memcpy(kinds + at * WEAVE_MEMBERS, rounds->missing[at].kinds, sizeof rounds->missing[at].kinds);
    return rounds->missing_count;
}

void weave_begin(struct weave_rounds *rounds) { rounds->missing_count = 0; }

int32_t weave_members(const struct weave_rounds *rounds) { return rounds->members; }

int weave_asks(const struct weave_rounds *rounds) { return rounds->missing_count > 0; }

int weave_count(struct weave_rounds *rounds, const struct weave_composition *of)
{
    if (of->size > rounds->members)
        return WEAVE_DONE;
    if (of->size < 1) {
        rounds->counted += !rounds->empty_counted;
        rounds->empty_counted = 1;
        return WEAVE_DONE;
    }
    struct entry *entry = add(rounds, of);
    if (!entry)
        return WEAVE_NO_MEMORY;
    rounds->counted += !entry->counted;
    entry->counted = 1;
    return WEAVE_DONE;
}

double weave_length(struct weave_rounds *rounds, const struct weave_composition *of)
{
    if (of->size < 1 || of->size > rounds->members)
        return INFINITY;
    const struct entry *entry = seek(rounds, of);
    if (entry->of.size && !isnan(entry->length_s))
        return entry->length_s;
    if (rounds->missing_count < WEAVE_MISSING)
        rounds->missing[rounds->missing_count++] = *of;
    return NAN;
}

struct weave_composition weave_one(int32_t kind)
{
    struct weave_composition of = { .size = kind >= 0, .kinds = { kind, -1, -1, -1 } };
    return of;
}

struct weave_composition weave_union(const struct weave_rounds *rounds, const struct weave_composition *a,
                                     const struct weave_composition *b)
{
    struct weave_composition of = { .size = a->size + b->size, .kinds = { -1, -1, -1, -1 } };
    if (of.size > rounds->members)
        return of;
    for (int at = 0, i = 0, j = 0; at < of.size; at++)
        of.kinds[at] = j >= b->size || (i < a->size && a->kinds[i] <= b->kinds[j]) ? a->kinds[i++] : b->kinds[j++];
    return of;
}
