/* Meters: two-rate three-colour markers (RFC 2698) that ignore earlier colours. And digests: values on their
 * way to the control plane.
 */
#ifndef P4_METERS_H
#define P4_METERS_H

#include "prelude.h"

enum { P4_GREEN, P4_YELLOW, P4_RED };

struct p4_bucket {
    uint64_t rate, burst;          /* tokens per second, and the bucket's size */
    uint64_t tokens, millionths;   /* tokens in it */
};

/* All members are 64-bit words: the control plane reads and writes them by their position. */
struct p4_meter {
    uint64_t configured;           /* 0: all packets are green */
    uint64_t last_us;
    struct p4_bucket committed, peak;
    uint64_t seen[3][2];           /* packets and bytes by colour */
};

P4_HELPER void p4_refill(struct p4_bucket *bucket, uint64_t elapsed_us)
{
    p4_u128 millionths = (p4_u128)bucket->rate * elapsed_us + bucket->millionths;
    p4_u128 tokens = bucket->tokens + millionths / 1000000;
    int full = tokens >= bucket->burst;
    bucket->tokens = full ? bucket->burst : (uint64_t)tokens;
    bucket->millionths = full ? 0 : (uint64_t)(millionths % 1000000);
}

/* Return the colour of a packet that takes `cost` tokens. */
P4_HELPER uint32_t p4_meter(struct p4_meter *meter, uint64_t now_us, uint64_t cost, uint64_t bytes)
{
    uint32_t colour = P4_GREEN;
    if (meter->configured) {
        if (now_us > meter->last_us) {
            p4_refill(&meter->committed, now_us - meter->last_us);
            p4_refill(&meter->peak, now_us - meter->last_us);
            meter->last_us = now_us;
        }
        if (meter->peak.tokens < cost) {
            colour = P4_RED;
        } else {
            meter->peak.tokens -= cost;
            if (meter->committed.tokens < cost)
                colour = P4_YELLOW;
            else
                meter->committed.tokens -= cost;
        }
    }
    meter->seen[colour][0]++;
    meter->seen[colour][1] += bytes;
    return colour;
}

/* Digests wait here until the control plane takes them: for each its number, then two words per value. */
#define P4_DIGEST_WORDS 65536

struct p4_digests {
    uint64_t used, lost;
    uint64_t words[P4_DIGEST_WORDS];
};

P4_HELPER void p4_digest(struct p4_digests *digests, const uint64_t *words, uint64_t count)
{
    if (digests->used + count > P4_DIGEST_WORDS) {
        digests->lost++;
        return;
    }
    memcpy(digests->words + digests->used, words, 8 * count);
    digests->used += count;
}

#endif
