/* A program for engine tests: each frame says what is to be done with it.
 *
 *   byte 0      what: see the switch below
 *   byte 1      how often (for 'R' and 'Z'), and the priority of its queue
 *   bytes 2-3   port or group
 *   bytes 4-5   clone session; 0: no clone
 *   byte 6      'i' or 'e': where to clone
 *   byte 7      turns taken so far: metadata, written by egress
 *   bytes 8-31  written by egress: what the traffic manager said of this copy
 *
 * 'B' makes it a bridge instead: see bridge().
 */
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

struct p4_pipeline {
    uint64_t seed;
    uint32_t expected[64], looked, entered, met;    /* frames looked at ahead of their turn; see script_met */
};

struct p4_packet {
    const uint8_t *frame;
    uint32_t length;
    uint32_t instance_type;
    uint16_t port;
    uint8_t turns;              /* the metadata that field list 1 keeps */
};

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint8_t *store32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
    return p + 4;
}

static uint32_t looks_like(const uint8_t *frame, uint32_t length)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < length && i < P4_AHEAD_BYTES; i++)
        sum = 31 * sum + frame[i];
    return sum;
}

static uint32_t waits(const struct p4_pipeline *pipeline)
{
    (void)pipeline;
    return 1;
}

static void ahead(struct p4_pipeline *pipeline, const uint8_t *frame, uint32_t length, uint16_t port)
{
    pipeline->expected[pipeline->looked++ % 64] = looks_like(frame, length) + port;
}

/* How many frames came in as they had been expected, in that order. */
__attribute__((visibility("default"))) uint32_t script_met(const struct p4_pipeline *pipeline)
{
    return pipeline->met;
}

static struct p4_pipeline *create(uint64_t seed)
{
    struct p4_pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (pipeline)
        pipeline->seed = seed;
    return pipeline;
}

static void destroy(struct p4_pipeline *pipeline)
{
    free(pipeline);
}

/* Unicast to the port that the destination address ends in; group addresses to everyone, in group 1. */
static void bridge(const uint8_t *frame, struct p4_verdict *verdict)
{
    if (frame[0] & 1)
        verdict->mcast_grp = 1;
    else
        verdict->egress_spec = frame[5];
}

static void ingress(struct p4_pipeline *pipeline, struct p4_packet *packet, const uint8_t *frame,
                    uint32_t length, uint16_t port, uint32_t instance_type, uint64_t now_us,
                    const struct p4_packet *previous, int32_t field_list, struct p4_verdict *verdict)
{
    (void)now_us;
    if (instance_type == P4_NORMAL && pipeline->entered < pipeline->looked) {
        uint32_t expected = pipeline->expected[pipeline->entered++ % 64];
        pipeline->met += expected == looks_like(frame, length) + port;
    }
    uint8_t turns = previous && field_list == 1 ? previous->turns : 0;
    *packet = (struct p4_packet){frame, length, instance_type, port, turns};
    memset(verdict, 0, sizeof *verdict);
    verdict->clone_fields = verdict->resubmit_fields = verdict->recirculate_fields = -1;
    if (length < 32) {
        verdict->dropped = 1;
        return;
    }
    verdict->priority = frame[1] % P4_PRIORITIES;
    if (load16(frame + 4) && frame[6] == 'i' && instance_type == P4_NORMAL) {
        verdict->clone = 1;
        verdict->clone_session = load16(frame + 4);
    }
    switch (frame[0]) {
    case 'M':
        verdict->mcast_grp = load16(frame + 2);
        break;
    case 'D':
        verdict->dropped = 1;
        break;
    case 'R':
        if (packet->turns < frame[1]) {
            packet->turns++;
            verdict->resubmit = 1;
            verdict->resubmit_fields = 1;
        }
        verdict->egress_spec = load16(frame + 2);
        break;
    case 'U': case 'X': case 'Z':
        verdict->egress_spec = load16(frame + 2);
        break;
    default:
        bridge(frame, verdict);
    }
}

static void copy(struct p4_packet *to, const struct p4_packet *from)
{
    *to = *from;
}

static void clone(struct p4_pipeline *pipeline, struct p4_packet *to, const struct p4_packet *from,
                  const uint8_t *frame, uint32_t length, int32_t field_list)
{
    (void)pipeline;
    *to = *from;
    to->frame = frame;
    to->length = length;
    if (field_list != 1)
        to->turns = 0;
}

static uint32_t egress(struct p4_pipeline *pipeline, struct p4_packet *packet, const struct p4_copy *as,
                       uint8_t *out, struct p4_verdict *verdict)
{
    (void)pipeline;
    memset(verdict, 0, sizeof *verdict);
    verdict->clone_fields = verdict->resubmit_fields = verdict->recirculate_fields = -1;
    memcpy(out, packet->frame, packet->length);
    if (packet->length < 32 || !strchr("MDRUXZ", out[0]) || !out[0]) {
        verdict->dropped = packet->length < 32 || (out[0] & 1 && packet->port == as->egress_port);
        return verdict->dropped ? 0 : packet->length;
    }
    if (load16(out + 4) && out[6] == 'e' && as->instance_type != P4_EGRESS_CLONE) {
        verdict->clone = 1;
        verdict->clone_session = load16(out + 4);
    }
    if (out[0] == 'Z' && packet->turns < out[1]) {
        packet->turns++;
        verdict->recirculate = 1;
        verdict->recirculate_fields = 1;
    }
    verdict->dropped = out[0] == 'X';
    out[7] = packet->turns;
    uint8_t *at = store32(out + 8, as->instance_type);
    at = store32(at, as->egress_rid);
    at = store32(at, as->enq_qdepth);
    at = store32(at, as->deq_qdepth);
    at = store32(at, as->deq_timedelta);
    store32(at, (uint32_t)as->now_us);
    return packet->length;
}

__attribute__((visibility("default"))) const struct p4_program p4_program = {
    .abi = P4_ABI, .packet_size = sizeof(struct p4_packet), .create = create,
    .destroy = destroy, .ingress = ingress, .copy = copy, .lend = copy, .clone = clone, .egress = egress,
    .waits = waits, .ahead = ahead,
};
