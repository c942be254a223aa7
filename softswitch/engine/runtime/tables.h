/* Match-action tables: the generated code defines the layout of entries; this code stores and finds them.
 *
 * A slot is a generated struct: `words` 64-bit words of key, then struct p4_match, then the action's
 * arguments. Hash tables (exact and lpm) probe linearly and are at most half full; an lpm table is one
 * hash table for all prefix lengths in use, tried from the longest. A byte for each value of a key's leading
 * bits gives the first length to try, and a filter with a bit per hash rules out most lengths after it. After
 * deletions both may admit too much, never too little, and are built anew.
 *
 * Ordered tables (ternary, range, optional) are an array with the winner first: value words, mask words, low
 * and high words of ranges. Large ones have an index beside it, by tuple space search (Srinivasan et al.,
 * SIGCOMM 1999): for each mask in use the entries are hashed, without their ranges. It is built anew some
 * look-ups after a change; until then, look-ups search the array.
 */
#ifndef P4_TABLES_H
#define P4_TABLES_H

#include "meters.h"

#define P4_MAX_PREFIXES 130
#define P4_FILTER_BITS 8           /* of an lpm table's filter, for each slot */
#define P4_LEAD_BITS 24            /* most leading bits of an lpm key that give the first length */
#define P4_LEAD_LEAST 16           /* a prefix may be shorter by this number of bits and still be noted there */
#define P4_FAR_BYTES ((size_t)256 << 10)    /* bytes of slots above which they leave the nearest caches */
#define P4_INDEX_LEAST 32          /* least entries of an ordered table with an index */
#define P4_INDEX_MASKS 128         /* most masks of an ordered table with an index */
#define P4_INDEX_PATIENCE 64       /* look-ups after a change before the index is built */
#define P4_INDEX_STEPS 8           /* probes for each entry: with more, too many entries differ only by their ranges */

struct p4_match {
    uint32_t live;             /* 0: free; else 1 + the group of the prefix length (0 if exact) */
    uint32_t action;           /* position in the table's list of actions */
};

struct p4_hits {               /* a direct counter; a part of its own, so that slots without are short */
    uint64_t packets, bytes;
};

struct p4_prefix {
    uint32_t group, entries, bits;
    uint32_t rank;             /* 1 to 64, falling with the length; several lengths may share one */
    uint32_t sure;             /* if it is the first length, the entry nearly always exists: skip the filter */
    uint64_t *mask;            /* words */
};

/* P4_FIXED: no entries, or constant ones that are code. */
enum { P4_EXACT, P4_LPM, P4_ORDERED, P4_FIXED };

/* Parts that an entry, or the default action, may have beside its match and action. */
enum { P4_HITS, P4_METER, P4_LAST_HIT, P4_PARTS };   /* struct p4_hits, struct p4_meter, uint64_t us */

/* A parameter of a table's action `action`: its place in the action's arguments. */
struct p4_param {
    uint32_t action, bytes;    /* bytes 0: the end of a table's parameters */
    size_t offset;
};

/* Constant while the program runs. */
struct p4_table_kind {
    const char *name;
    uint32_t kind, words;      /* words of key */
    uint32_t match_words;      /* exact: key; lpm: key and mask; ordered: value, mask, low and high words */
    uint32_t bits;             /* of key */
    uint32_t top, width;       /* lpm: end and width of the prefix in the key, bits from the least significant */
    size_t slot_bytes, match, args;               /* of a slot; offsets of match and arguments in it */
    size_t default_match, default_args, hits;     /* offsets in struct p4_pipeline; hits: of code */
    size_t parts[P4_PARTS], default_parts[P4_PARTS];   /* offsets in a slot and in struct p4_pipeline; 0: none */
    const struct p4_param *params;
};

/* The result of applying a table. */
struct p4_outcome {
    uint32_t hit, action, leave;    /* leave: the action ran an exit statement */
};

struct p4_table {
    const struct p4_table_kind *kind;
    uint8_t *slots;
    uint64_t capacity;         /* slots; a power of two */
    uint64_t entries;
    uint32_t shift;            /* 64 - log2(capacity) */
    uint32_t prefix_count;
    struct p4_prefix *prefixes;
    uint64_t *filter;          /* lpm: P4_FILTER_BITS for each slot */
    uint8_t *ranks;            /* lpm: for each value of the leading bits, the highest rank there */
    uint32_t lead_bits;
    uint8_t first[65];         /* lpm: for each rank in use, its first prefix; for 0, the first prefix without a rank */
    uint32_t large;            /* look-ups wait for memory: 0 or 1 */
    uint8_t likely;            /* lpm: the prefix with the most entries */
    uint64_t forgotten;        /* lpm: entries deleted since the filter was made, whose bits are still set */
    uint32_t *index;           /* ordered: 1 + position, by hash; 2^(64 - index_shift) words */
    uint32_t index_shift;
    uint32_t mask_count;       /* masks in the index; 0: there is no index */
    uint32_t looked_up;        /* look-ups since the last change, up to P4_INDEX_PATIENCE + 1 */
    uint32_t masks[P4_INDEX_MASKS];    /* the position of the first entry with each, in ascending order */
};

P4_INLINE void p4_hit(struct p4_hits *hits, uint64_t bytes)
{
    hits->packets++;
    hits->bytes += bytes;
}

P4_INLINE uint64_t p4_hash(const uint64_t *key, uint32_t words)
{
    uint64_t h = key[0];
    for (uint32_t i = 1; i < words; i++)
        h = (h * 0x9e3779b97f4a7c15 ^ h >> 32) + key[i];
    return h * 0x9e3779b97f4a7c15;
}

P4_INLINE int p4_equal(const uint64_t *a, const uint64_t *b, uint32_t words)
{
    uint64_t difference = 0;
    for (uint32_t i = 0; i < words; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

P4_INLINE struct p4_match *p4_match_of(const uint8_t *slot, uint32_t words)
{
    return (struct p4_match *)(uintptr_t)(slot + 8 * words);
}

/* The hash of a key in the group of entries `live` (struct p4_match). */
P4_INLINE uint64_t p4_hash_in(const uint64_t *key, uint32_t words, uint32_t live)
{
    return p4_hash(key, words) + (live - 1) * 0xc2b2ae3d27d4eb4f;
}

/* The slot of `key` in the group, or NULL. Sizes are constants at every call, so this specialises. */
P4_INLINE void *p4_find(const struct p4_table *t, const uint64_t *key, uint32_t words, size_t slot_bytes,
                        uint32_t live)
{
    for (uint64_t i = p4_hash_in(key, words, live) >> t->shift;; i = (i + 1) & (t->capacity - 1)) {
        uint8_t *slot = t->slots + i * slot_bytes;
        uint32_t there = p4_match_of(slot, words)->live;
        if (P4_LIKELY(there == live && p4_equal((const uint64_t *)(const void *)slot, key, words)))
            return slot;
        if (there == 0)
            return NULL;
    }
}

/* Begin to fetch the slot that p4_find will read. */
P4_INLINE void p4_fetch(const struct p4_table *t, const uint64_t *key, uint32_t words, size_t slot_bytes)
{
    __builtin_prefetch(t->slots + (p4_hash_in(key, words, 1) >> t->shift) * slot_bytes);
}

/* True if an lpm table may have an entry with this hash. */
P4_INLINE int p4_may_have(const struct p4_table *t, uint64_t hash)
{
    uint64_t bit = hash >> (t->shift - __builtin_ctz(P4_FILTER_BITS));
    return t->filter[bit / 64] >> (bit % 64) & 1;
}

/* The leading bits of the part of a key (or mask) that ends before bit `top`. */
P4_INLINE uint64_t p4_lead(const struct p4_table *t, const uint64_t *key, uint32_t top)
{
    uint32_t word = (top - 1) / 64, used = top - 64 * word;
    uint64_t bits = key[word] << (64 - used);
    if (used < P4_LEAD_BITS && word)
        bits |= key[word - 1] >> used;
    return bits >> (64 - t->lead_bits);
}

/* Begin to fetch the data of p4_find_longest: the first length, and an entry of the likely length. */
P4_INLINE void p4_fetch_longest(const struct p4_table *t, const uint64_t *key, uint32_t words, size_t slot_bytes,
                                uint32_t top)
{
    if (!t->prefix_count)
        return;
    const struct p4_prefix *likely = &t->prefixes[t->likely];
    uint64_t masked[words];
    for (uint32_t i = 0; i < words; i++)
        masked[i] = key[i] & likely->mask[i];
    __builtin_prefetch(t->slots + (p4_hash_in(masked, words, likely->group + 1) >> t->shift) * slot_bytes);
    __builtin_prefetch(&t->ranks[p4_lead(t, key, top)]);
}

P4_INLINE void *p4_find_longest(const struct p4_table *t, const uint64_t *key, uint32_t words,
                                size_t slot_bytes, uint32_t top)
{
    uint64_t masked[words];
    if (!t->prefix_count)
        return NULL;
    const struct p4_prefix *likely = &t->prefixes[t->likely];    /* a guess, fetched together with the ranks */
    for (uint32_t i = 0; i < words; i++)
        masked[i] = key[i] & likely->mask[i];
    __builtin_prefetch(t->slots + (p4_hash_in(masked, words, likely->group + 1) >> t->shift) * slot_bytes);
    uint32_t first = t->first[t->ranks[p4_lead(t, key, top)]];
    for (uint32_t n = first; n < t->prefix_count; n++) {
        for (uint32_t i = 0; i < words; i++)
            masked[i] = key[i] & t->prefixes[n].mask[i];
        uint32_t live = t->prefixes[n].group + 1;
        if (!(n == first && t->prefixes[n].sure) && !p4_may_have(t, p4_hash_in(masked, words, live)))
            continue;
        void *slot = p4_find(t, masked, words, slot_bytes, live);
        if (slot)
            return slot;
    }
    return NULL;
}

P4_INLINE const uint64_t *p4_value_of(const struct p4_table *t, uint64_t position, size_t slot_bytes)
{
    return (const uint64_t *)(const void *)(t->slots + position * slot_bytes);
}

P4_HELPER void p4_table_index(struct p4_table *t);

/* True if the ranges of an ordered table's entry contain these values; `end`: the words behind its mask. */
P4_INLINE int p4_in_ranges(const uint64_t *end, const p4_u128 *ranged, uint32_t ranges)
{
    for (uint32_t r = 0; r < ranges; r++) {
        const uint64_t *low = end + 2 * r, *high = low + 2 * ranges;
        if (ranged[r] < P4_U128(low[1], low[0]) || ranged[r] > P4_U128(high[1], high[0]))
            return 0;
    }
    return 1;
}

/* The first entry of an ordered table that matches, or NULL. */
P4_INLINE void *p4_find_first(struct p4_table *t, const uint64_t *key, uint32_t words, const p4_u128 *ranged,
                              uint32_t ranges, size_t slot_bytes)
{
    if (!t->mask_count && t->entries >= P4_INDEX_LEAST && t->looked_up <= P4_INDEX_PATIENCE
        && t->looked_up++ == P4_INDEX_PATIENCE)
        p4_table_index(t);
    if (!t->mask_count) {
        for (uint64_t n = 0; n < t->entries; n++) {
            const uint64_t *value = p4_value_of(t, n, slot_bytes);
            uint64_t difference = 0;
            for (uint32_t i = 0; i < words; i++)
                difference |= (key[i] & value[words + i]) ^ value[i];
            if (!difference && p4_in_ranges(value + 2 * words, ranged, ranges))
                return t->slots + n * slot_bytes;
        }
        return NULL;
    }
    uint64_t best = t->entries;
    for (uint32_t n = 0; n < t->mask_count && t->masks[n] < best; n++) {
        const uint64_t *mask = p4_value_of(t, t->masks[n], slot_bytes) + words;
        uint64_t masked[words], last = UINT64_MAX >> t->index_shift;
        for (uint32_t i = 0; i < words; i++)
            masked[i] = key[i] & mask[i];
        for (uint64_t i = p4_hash_in(masked, words, n + 1) >> t->index_shift; t->index[i]; i = (i + 1) & last) {
            const uint64_t *value = p4_value_of(t, t->index[i] - 1, slot_bytes);
            if (p4_equal(value, masked, words) && p4_equal(value + words, mask, words)
                && p4_in_ranges(value + 2 * words, ranged, ranges)) {
                if (t->index[i] - 1 < best)
                    best = t->index[i] - 1;
                break;
            }
        }
    }
    return best < t->entries ? t->slots + best * slot_bytes : NULL;
}

/* ---------------------------------------------------------------- control plane
 * Callers have checked that an entry fits and whether it is there. Results: 0, or -1 out of memory. */

/* The number of leading bits that a prefix leaves open: it is noted in the ranks for all their values, unless
 * there are too many. */
P4_HELPER uint64_t p4_open(const struct p4_table *t, const struct p4_prefix *prefix)
{
    return ~p4_lead(t, prefix->mask, t->kind->top) & (((uint64_t)1 << t->lead_bits) - 1);
}

/* Register an entry of an lpm table: set its hash's bit in the filter, and its rank for its leading bits. */
P4_HELPER void p4_table_note(struct p4_table *t, const uint64_t *key, const struct p4_prefix *prefix)
{
    const struct p4_table_kind *kind = t->kind;
    uint64_t hash = p4_hash_in(key, kind->words, prefix->group + 1);
    uint64_t bit = hash >> (t->shift - (uint32_t)__builtin_ctz(P4_FILTER_BITS));
    t->filter[bit / 64] |= (uint64_t)1 << bit % 64;
    uint64_t lead = p4_lead(t, key, kind->top), open = p4_open(t, prefix);
    for (uint64_t n = 0; n <= open && open >> P4_LEAD_LEAST == 0; n++)
        t->ranks[lead + n] = t->ranks[lead + n] > prefix->rank ? t->ranks[lead + n] : (uint8_t)prefix->rank;
}

P4_HELPER const struct p4_prefix *p4_table_group(const struct p4_table *t, uint32_t group)
{
    const struct p4_prefix *prefix = t->prefixes;
    while (prefix->group != group)
        prefix++;
    return prefix;
}

/* Build filter and ranks of an lpm table from its entries. */
P4_HELPER void p4_table_filter(struct p4_table *t)
{
    const struct p4_table_kind *kind = t->kind;
    memset(t->filter, 0, t->capacity * P4_FILTER_BITS / 8);
    memset(t->ranks, 0, (uint64_t)1 << t->lead_bits);
    t->forgotten = 0;
    for (uint64_t n = 0; n < t->capacity; n++) {
        const uint8_t *slot = t->slots + n * kind->slot_bytes;
        uint32_t live = p4_match_of(slot, kind->words)->live;
        if (live)
            p4_table_note(t, (const uint64_t *)(const void *)slot, p4_table_group(t, live - 1));
    }
}

/* The number of the entry's mask in the index, added if there is room; else P4_INDEX_MASKS. */
P4_HELPER uint32_t p4_table_mask(struct p4_table *t, uint32_t position)
{
    const struct p4_table_kind *kind = t->kind;
    const uint64_t *mask = p4_value_of(t, position, kind->slot_bytes) + kind->words;
    for (uint32_t n = 0; n < t->mask_count; n++)
        if (p4_equal(p4_value_of(t, t->masks[n], kind->slot_bytes) + kind->words, mask, kind->words))
            return n;
    if (t->mask_count == P4_INDEX_MASKS)
        return P4_INDEX_MASKS;
    t->masks[t->mask_count] = position;
    return t->mask_count++;
}

/* Build the index of an ordered table, if it pays and there is memory; else `mask_count` stays 0. */
P4_HELPER void p4_table_index(struct p4_table *t)
{
    const struct p4_table_kind *kind = t->kind;
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(2 * t->entries);
    uint64_t steps = P4_INDEX_STEPS * t->entries;
    free(t->index);
    t->index = calloc((uint64_t)1 << bits, sizeof *t->index);
    t->index_shift = 64 - bits;
    if (!t->index)
        return;
    for (uint32_t position = 0; position < t->entries; position++) {
        const uint64_t *value = p4_value_of(t, position, kind->slot_bytes);
        uint32_t n = p4_table_mask(t, position);
        uint64_t i = p4_hash_in(value, kind->words, n + 1) >> t->index_shift;
        while (t->index[i] && --steps)
            i = (i + 1) & (UINT64_MAX >> t->index_shift);
        if (!steps || n == P4_INDEX_MASKS || t->mask_count > t->entries / 8) {
            t->mask_count = 0;
            return;
        }
        t->index[i] = position + 1;    /* after the entries of the same match that win over it */
    }
}

P4_HELPER void p4_table_forget_index(struct p4_table *t)
{
    t->mask_count = t->looked_up = 0;
}

/* Set the first length of each rank, after a change of the prefixes or of the number of leading bits. */
P4_HELPER void p4_table_rank(struct p4_table *t)
{
    t->first[0] = (uint8_t)t->prefix_count;
    t->likely = 0;
    for (uint32_t n = t->prefix_count; n-- > 0;) {
        struct p4_prefix *prefix = &t->prefixes[n];
        prefix->sure = t->kind->bits - prefix->bits + t->lead_bits >= t->kind->width;
        t->first[prefix->rank] = (uint8_t)n;
        if (p4_open(t, prefix) >> P4_LEAD_LEAST)
            t->first[0] = (uint8_t)n;
        if (prefix->entries > t->prefixes[t->likely].entries)
            t->likely = (uint8_t)n;
    }
}

P4_HELPER int p4_table_reserve(struct p4_table *t, uint64_t capacity)
{
    const struct p4_table_kind *kind = t->kind;
    uint8_t *old = t->slots;
    uint64_t old_capacity = t->capacity;
    uint8_t *slots = p4_allocate(capacity * kind->slot_bytes);
    uint32_t bits = (uint32_t)__builtin_ctzll(capacity), lead_bits = bits + 6;
    if (lead_bits > P4_LEAD_BITS)
        lead_bits = P4_LEAD_BITS;
    if (lead_bits > kind->width)
        lead_bits = kind->width;
    uint64_t *filter = kind->kind == P4_LPM ? malloc(capacity * P4_FILTER_BITS / 8) : NULL;
    uint8_t *ranks = kind->kind == P4_LPM ? p4_allocate((uint64_t)1 << lead_bits) : NULL;
    if (!slots || (kind->kind == P4_LPM && (!filter || !ranks))) {
        free(slots);
        free(filter);
        free(ranks);
        return -1;
    }
    t->slots = slots;
    t->capacity = capacity;
    t->shift = 64 - bits;
    t->large = capacity * kind->slot_bytes >= P4_FAR_BYTES;
    if (kind->kind == P4_ORDERED) {
        if (old)
            memcpy(slots, old, t->entries * kind->slot_bytes);
    } else {
        for (uint64_t n = 0; n < old_capacity; n++) {
            const uint8_t *slot = old + n * kind->slot_bytes;
            if (!p4_match_of(slot, kind->words)->live)
                continue;
            uint32_t live = p4_match_of(slot, kind->words)->live;
            uint64_t i = p4_hash_in((const uint64_t *)(const void *)slot, kind->words, live) >> t->shift;
            while (p4_match_of(slots + i * kind->slot_bytes, kind->words)->live)
                i = (i + 1) & (capacity - 1);
            memcpy(slots + i * kind->slot_bytes, slot, kind->slot_bytes);
        }
    }
    free(old);
    if (filter) {
        free(t->filter);
        free(t->ranks);
        t->filter = filter;
        t->ranks = ranks;
        t->lead_bits = lead_bits;
        p4_table_rank(t);
        p4_table_filter(t);
    }
    return 0;
}

P4_HELPER int p4_table_create(struct p4_table *t, const struct p4_table_kind *kind)
{
    t->kind = kind;
    if (kind->kind == P4_FIXED)
        return 0;
    if (kind->kind == P4_LPM) {
        t->prefixes = calloc(P4_MAX_PREFIXES, sizeof *t->prefixes);
        if (!t->prefixes)
            return -1;
    }
    return p4_table_reserve(t, 16);
}

P4_HELPER void p4_table_destroy(struct p4_table *t)
{
    for (uint32_t n = 0; n < t->prefix_count; n++)
        free(t->prefixes[n].mask);
    free(t->prefixes);
    free(t->filter);
    free(t->ranks);
    free(t->index);
    free(t->slots);
}

/* The group of this mask, created if needed; NULL without memory. */
P4_HELPER struct p4_prefix *p4_table_prefix(struct p4_table *t, const uint64_t *mask)
{
    uint32_t words = t->kind->words, bits = 0, at = 0;
    uint8_t used[P4_MAX_PREFIXES] = {0};
    for (uint32_t i = 0; i < words; i++)
        bits += (uint32_t)__builtin_popcountll(mask[i]);
    for (uint32_t n = 0; n < t->prefix_count; n++) {
        if (p4_equal(t->prefixes[n].mask, mask, words))
            return &t->prefixes[n];
        used[t->prefixes[n].group] = 1;
        at += t->prefixes[n].bits > bits;
    }
    uint64_t *copy = malloc(8 * words);
    if (!copy)
        return NULL;
    memcpy(copy, mask, 8 * words);
    memmove(&t->prefixes[at + 1], &t->prefixes[at], (t->prefix_count - at) * sizeof *t->prefixes);
    t->prefix_count++;
    uint32_t group = 0;
    while (used[group])
        group++;
    uint32_t open = 63 * (t->kind->bits - bits) / t->kind->width;
    t->prefixes[at] = (struct p4_prefix){group, 0, bits, 64 - (open < 63 ? open : 63), 0, copy};
    p4_table_rank(t);
    return &t->prefixes[at];
}

P4_HELPER void p4_table_forget_prefix(struct p4_table *t, struct p4_prefix *prefix)
{
    uint32_t at = (uint32_t)(prefix - t->prefixes);
    free(prefix->mask);
    t->prefix_count--;
    memmove(prefix, prefix + 1, (t->prefix_count - at) * sizeof *prefix);
    p4_table_rank(t);
}

/* The slot of an entry. `match`: key words (lpm: also mask words); `position` only if ordered. */
P4_HELPER uint8_t *p4_table_slot(struct p4_table *t, const uint64_t *match, uint64_t position)
{
    const struct p4_table_kind *kind = t->kind;
    uint32_t live = 1;
    if (kind->kind == P4_ORDERED)
        return t->slots + position * kind->slot_bytes;
    if (kind->kind == P4_LPM) {
        struct p4_prefix *prefix = p4_table_prefix(t, match + kind->words);
        if (!prefix)
            return NULL;
        live = prefix->group + 1;
    }
    return p4_find(t, match, kind->words, kind->slot_bytes, live);
}

/* Store the arguments of an action, two words for each. */
P4_HELPER void p4_fill(const struct p4_table_kind *kind, uint8_t *args, uint32_t action, const uint64_t *words)
{
    for (const struct p4_param *param = kind->params; param->bytes; param++)
        if (param->action == action) {
            memcpy(args + param->offset, words, param->bytes);
            words += 2;
        }
}

P4_HELPER int p4_table_insert(struct p4_table *t, const uint64_t *match, uint64_t position,
                              uint32_t action, const uint64_t *args)
{
    const struct p4_table_kind *kind = t->kind;
    uint32_t live = 1;
    uint8_t *slot;
    if (2 * (t->entries + 1) > t->capacity && p4_table_reserve(t, 2 * t->capacity))
        return -1;
    if (kind->kind == P4_ORDERED) {
        slot = t->slots + position * kind->slot_bytes;
        memmove(slot + kind->slot_bytes, slot, (t->entries - position) * kind->slot_bytes);
        p4_table_forget_index(t);
    } else {
        if (kind->kind == P4_LPM) {
            struct p4_prefix *prefix = p4_table_prefix(t, match + kind->words);
            if (!prefix)
                return -1;
            prefix->entries++;
            live = prefix->group + 1;
            p4_table_note(t, match, prefix);
        }
        uint64_t i = p4_hash_in(match, kind->words, live) >> t->shift;
        while (p4_match_of(t->slots + i * kind->slot_bytes, kind->words)->live)
            i = (i + 1) & (t->capacity - 1);
        slot = t->slots + i * kind->slot_bytes;
    }
    memset(slot, 0, kind->slot_bytes);
    memcpy(slot, match, 8 * (kind->kind == P4_ORDERED ? kind->match_words : kind->words));
    struct p4_match *head = (struct p4_match *)(void *)(slot + kind->match);
    head->live = live;
    head->action = action;
    p4_fill(kind, slot + kind->args, action, args);
    t->entries++;
    return 0;
}

P4_HELPER int p4_table_modify(struct p4_table *t, const uint64_t *match, uint64_t position,
                              uint32_t action, const uint64_t *args)
{
    uint8_t *slot = p4_table_slot(t, match, position);
    if (!slot)
        return -1;
    ((struct p4_match *)(void *)(slot + t->kind->match))->action = action;
    p4_fill(t->kind, slot + t->kind->args, action, args);
    return 0;
}

P4_HELPER int p4_table_delete(struct p4_table *t, const uint64_t *match, uint64_t position)
{
    const struct p4_table_kind *kind = t->kind;
    uint8_t *slot = p4_table_slot(t, match, position);
    if (!slot)
        return -1;
    t->entries--;
    if (kind->kind == P4_ORDERED) {
        memmove(slot, slot + kind->slot_bytes, (t->entries - position) * kind->slot_bytes);
        p4_table_forget_index(t);
        return 0;
    }
    if (kind->kind == P4_LPM) {
        struct p4_prefix *prefix = p4_table_prefix(t, match + kind->words);
        if (prefix && --prefix->entries == 0)
            p4_table_forget_prefix(t, prefix);
    }
    /* Close the gap: move back entries that had probed past it. */
    uint64_t hole = (uint64_t)(slot - t->slots) / kind->slot_bytes, last = t->capacity - 1;
    for (uint64_t i = (hole + 1) & last;; i = (i + 1) & last) {
        uint8_t *next = t->slots + i * kind->slot_bytes;
        if (!p4_match_of(next, kind->words)->live)
            break;
        uint32_t live = p4_match_of(next, kind->words)->live;
        uint64_t home = p4_hash_in((const uint64_t *)(void *)next, kind->words, live) >> t->shift;
        if (((i - home) & last) >= ((i - hole) & last)) {
            memcpy(t->slots + hole * kind->slot_bytes, next, kind->slot_bytes);
            hole = i;
        }
    }
    memset(t->slots + hole * kind->slot_bytes, 0, kind->slot_bytes);
    if (kind->kind == P4_LPM && ++t->forgotten > t->capacity / 4)
        p4_table_filter(t);
    return 0;
}

#endif
