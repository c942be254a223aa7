/* Drives frames through a pipeline as fast as it goes, in memory: on one thread without queues in between. by_hand.c
   is compiled behind this file. */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <time.h>

#include "pipeline.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct bench_frame {
    uint32_t offset, length;   /* in `frames` */
    uint16_t port;
};

struct bench_loop {
    uint8_t *frames;
    const struct bench_frame *frame;
    uint32_t frame_count;
    uint32_t number_offset, number_step;    /* a 32-bit big-endian number in each frame, raised per pass */
    uint32_t passes;
    uint64_t nanoseconds;                   /* result */
};

struct bench_replica {
    uint16_t port, rid;
};

struct bench_run {
    struct bench_loop loop;
    const struct bench_replica *replica;    /* the copies of a multicast packet */
    uint32_t replica_count;
    uint32_t one_by_one;                    /* fetch nothing ahead */
    uint64_t sent;                          /* result */
};

/* Processor time of this thread, without that of other processes. */
static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t number_at(const uint8_t *at)
{
    uint32_t number;
    memcpy(&number, at, 4);
    return __builtin_bswap32(number);
}

/* Before a pass: a frame that comes in has not been written to by this processor a moment before, whose loads across
   the number would wait until it is in the cache. */
static void raise_numbers(const struct bench_loop *loop)
{
    for (uint32_t n = 0; n < loop->frame_count; n++) {
        uint8_t *at = loop->frames + loop->frame[n].offset + loop->number_offset;
        uint32_t number = __builtin_bswap32(number_at(at) + loop->number_step);
        memcpy(at, &number, 4);
    }
}

/* A copy to a port that leads back into the pipeline of a program for Tofino, and what it does there. */
static void recirculate(const struct p4_program *program, struct p4_pipeline *state, struct p4_packet *packet,
                        struct p4_packet *twin, uint8_t *out, uint64_t now_us)
{
    struct p4_copy copy = {.egress_port = 68, .instance_type = P4_REPLICATED, .now_us = now_us};
    struct p4_verdict verdict;
    program->lend(twin, packet);
    uint32_t length = program->egress(state, twin, &copy, out, &verdict);
    if (length && !verdict.dropped && verdict.recirculate)
        program->ingress(state, packet, out, length, 0, P4_RECIRCULATED, now_us, twin, -1, &verdict);
}

/* Room for the packets in work and the frame that leaves, side by side: where two of them have the same place in their
   pages, processors take loads from one to follow stores to the other, which cost a tenth of the time in some runs. */
struct scratch {
    struct p4_packet *packet, *twin;
    uint8_t *memory, *out;
};

static int scratch_open(struct scratch *scratch, const struct p4_program *program)
{
    size_t size = ((size_t)program->packet_size + 63) / 64 * 64;
    scratch->memory = aligned_alloc(4096, (2 * size + P4_MAX_FRAME + 4095) / 4096 * 4096);
    scratch->packet = (struct p4_packet *)(void *)scratch->memory;
    scratch->twin = (struct p4_packet *)(void *)(scratch->memory + size);
    scratch->out = scratch->memory + 2 * size;
    return scratch->memory ? 0 : -1;
}

static void scratch_close(struct scratch *scratch)
{
    free(scratch->memory);
}

/* Run ingress for a frame and egress for every copy that leaves; return the number of copies. */
static inline __attribute__((always_inline)) uint64_t process(const struct p4_program *program,
                                                              struct p4_pipeline *state,
                                                              const struct bench_run *run,
                                                              const struct scratch *scratch,
                                                              const struct bench_frame *frame, uint64_t now_us)
{
    struct p4_packet *packet = scratch->packet, *twin = scratch->twin;
    uint8_t *out = scratch->out;
    struct p4_verdict verdict, last;
    uint64_t sent = 0;
    program->ingress(state, packet, run->loop.frames + frame->offset, frame->length, frame->port, P4_NORMAL, now_us, NULL,
                     -1, &verdict);
    if (verdict.dropped)
        return 0;
    uint16_t again = verdict.mcast_grp_2;
    if (!verdict.mcast_grp && (verdict.unicast || !again)) {
        struct p4_copy copy = {.egress_port = verdict.egress_spec, .now_us = now_us};
        struct p4_packet *only = packet;
        if (again) {
            program->lend(twin, packet);
            only = twin;
        }
        sent += program->egress(state, only, &copy, out, &last) != 0;
    }
    for (uint32_t r = 0; verdict.mcast_grp && r < run->replica_count; r++) {
        struct p4_copy copy = {.egress_port = run->replica[r].port,
                               .egress_rid = run->replica[r].rid,
                               .instance_type = P4_REPLICATED,
                               .now_us = now_us};
        struct p4_packet *replica = packet;
        if (r + 1 < run->replica_count || again) {
            program->lend(twin, packet);
            replica = twin;
        }
        sent += program->egress(state, replica, &copy, out, &last) != 0;
    }
    if (again)
        recirculate(program, state, packet, twin, out, now_us);
    return sent;
}

/* Run every frame of every pass. 0, or -1: no memory. */
EXPORT int bench_pipeline(const struct p4_program *program, struct p4_pipeline *state, struct bench_run *run)
{
    struct bench_loop *loop = &run->loop;
    struct scratch scratch;
    if (scratch_open(&scratch, program)) {
        scratch_close(&scratch);
        return -1;
    }
    bool ahead = !run->one_by_one && program->waits && program->waits(state);
    uint64_t sent = 0, start = now();
    for (uint32_t pass = 0; pass < loop->passes; pass++) {
        raise_numbers(loop);
        for (uint32_t n = 0; n < loop->frame_count; n++) {
            const struct bench_frame *frame = &loop->frame[n];
            if (ahead && n + P4_AHEAD < loop->frame_count) {
                const struct bench_frame *later = frame + P4_AHEAD;
                program->ahead(state, loop->frames + later->offset, later->length, later->port);
            }
            sent += process(program, state, run, &scratch, frame, pass);
        }
    }
    loop->nanoseconds = now() - start;
    run->sent = sent;
    scratch_close(&scratch);
    return 0;
}

struct bench_sums {
    struct bench_loop loop;
    uint32_t values_offset, lanes;          /* place and number of the 32-bit big-endian values of a frame */
    uint32_t slots, contributors;           /* a sum is over frames of the same number */
};

static void load_values(uint32_t *restrict to, const uint8_t *restrict from, size_t lanes)
{
    for (size_t i = 0; i < lanes; i++)
        to[i] = number_at(from + 4 * i);
}

static void add_values(uint32_t *restrict to, const uint8_t *restrict from, size_t lanes)
{
    for (size_t i = 0; i < lanes; i++)
        to[i] += number_at(from + 4 * i);
}

static void copy_values(uint32_t *restrict to, const uint32_t *restrict from, size_t lanes)
{
    for (size_t i = 0; i < lanes; i++)
        to[i] = __builtin_bswap32(from[i]);
}

/* The sums of the same frames by themselves, without a program around them: values into a slot, the last
   contribution's sum out again. 0, or -1: no memory. */
EXPORT int bench_sums(struct bench_sums *run)
{
    struct bench_loop *loop = &run->loop;
    uint32_t lanes = run->lanes, size = (lanes * 4 + 63) / 64 * 64;
    uint8_t *slots = aligned_alloc(64, (size_t)run->slots * size);
    uint32_t *out = aligned_alloc(64, size);
    uint32_t *met = calloc(run->slots, sizeof *met);
    if (slots && out && met) {
        memset(slots, 0, (size_t)run->slots * size);
        uint64_t start = now();
        for (uint32_t pass = 0; pass < loop->passes; pass++) {
            raise_numbers(loop);
            for (uint32_t n = 0; n < loop->frame_count; n++) {
                uint8_t *bytes = loop->frames + loop->frame[n].offset;
                uint32_t index = number_at(bytes + loop->number_offset) % run->slots;
                uint32_t *slot = (uint32_t *)(void *)(slots + (size_t)index * size);
                const uint8_t *values = bytes + run->values_offset;
                uint32_t turn = met[index]++ % run->contributors;
                if (turn == 0)
                    load_values(slot, values, lanes);
                else
                    add_values(slot, values, lanes);
                if (turn + 1 < run->contributors)
                    continue;
                for (uint32_t copy = 0; copy < run->contributors; copy++) {
                    copy_values(out, slot, lanes);
                    __asm__ volatile("" : : "r"(out) : "memory");   /* each copy has a receiver */
                }
            }
        }
        loop->nanoseconds = now() - start;
    }
    int failed = !slots || !out || !met;
    free(slots);
    free(out);
    free(met);
    return -failed;
}

/* Send one frame `count` times, up to 64, through a packet socket. Returns how many it took; -1: see errno. */
EXPORT int bench_send(int socket, uint8_t *frame, uint32_t length, uint32_t count)
{
    struct iovec part = {frame, length};
    struct mmsghdr messages[64];
    for (uint32_t n = 0; n < count; n++)
        messages[n] = (struct mmsghdr){.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    return sendmmsg(socket, messages, count, 0);
}
