/* Drives frames through a pipeline as fast as it goes, in memory: on one thread without queues in between, or on
 * several that divide the packets by their slots.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "hand_over.h"
#include "pipeline.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct bench_frame {
    uint32_t offset, length;   /* in `frames` */
    uint16_t port;
};

struct bench_replica {
    uint16_t port, rid;
};

struct bench_run {
    uint8_t *frames;
    const struct bench_frame *frame;
    uint32_t frame_count;
    const struct bench_replica *replica;    /* what a multicast makes of a packet */
    uint32_t replica_count;
    uint32_t number_offset, number_step;    /* a 32-bit big-endian number in each frame, raised per pass */
    uint32_t passes;
    uint32_t one_by_one;                    /* do not look ahead */
    uint32_t in_front;                      /* passes that a thread may be in front of the others */
    /* results */
    uint64_t sent, nanoseconds;
};

/* Processor time of this thread: what other processes take does not count. */
static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void raise_number(uint8_t *at, uint32_t step)
{
    uint32_t number;
    memcpy(&number, at, 4);
    number = __builtin_bswap32(__builtin_bswap32(number) + step);
    memcpy(at, &number, 4);
}

/* Before a pass: a frame that comes in has not been written to by this processor a moment before, whose loads across
   the number would wait until it is in the cache. */
static void raise_numbers(const struct bench_frame *frame, uint32_t count, uint8_t *frames, uint32_t offset,
                          uint32_t step)
{
    for (uint32_t n = 0; n < count; n++)
        raise_number(frames + frame[n].offset + offset, step);
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

/* Run ingress for a frame and egress for every copy that leaves; returns how many those are. */
static inline __attribute__((always_inline)) uint64_t process(const struct p4_program *program,
                                                              struct p4_pipeline *state,
                                                              const struct bench_run *run,
                                                              const struct scratch *scratch,
                                                              const struct p4_arrival *arrival, uint64_t now_us)
{
    struct p4_packet *packet = scratch->packet, *twin = scratch->twin;
    uint8_t *out = scratch->out;
    struct p4_verdict verdict, last;
    uint64_t sent = 0;
    program->ingress(state, packet, arrival->frame, arrival->length, arrival->port, P4_NORMAL, now_us, NULL, -1,
                     &verdict);
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
__attribute__((visibility("default"))) int bench_pipeline(const struct p4_program *program,
                                                          struct p4_pipeline *state, struct bench_run *run)
{
    struct scratch scratch;
    if (scratch_open(&scratch, program)) {
        scratch_close(&scratch);
        return -1;
    }
    bool ahead = !run->one_by_one && program->waits && program->waits(state);
    uint64_t sent = 0, start = now();
    for (uint32_t pass = 0; pass < run->passes; pass++) {
        raise_numbers(run->frame, run->frame_count, run->frames, run->number_offset, run->number_step);
        for (uint32_t n = 0; n < run->frame_count; n++) {
            const struct bench_frame *frame = &run->frame[n];
            struct p4_arrival arrival = {run->frames + frame->offset, frame->length, frame->port};
            if (ahead && n + P4_AHEAD < run->frame_count) {
                const struct bench_frame *later = frame + P4_AHEAD;
                program->ahead(state, run->frames + later->offset, later->length, later->port);
            }
            sent += process(program, state, run, &scratch, &arrival, pass);
        }
    }
    run->nanoseconds = now() - start;
    run->sent = sent;
    scratch_close(&scratch);
    return 0;
}

/* ---------------------------------------------------------------- several threads */

#define BENCH_THREADS 16
#define BENCH_BURST 64u         /* frames that a thread receives before it processes its own */
#define BENCH_TURN 32u          /* frames that it processes before it looks at what others have handed over */
#define BENCH_COPIES 2u         /* of each frame, so that one may still be in a ring when the next pass has begun */

struct bench_member;

/* What threads share. Thread `of` hands frames over to `to` by rings[of][to]. A copy's number is that of
   the frame in the run, times BENCH_COPIES, plus which copy it is. */
struct bench_team {
    const struct p4_program *program;
    const struct bench_run *run;
    uint32_t threads;
    struct hand_over_map map;
    uint8_t *frames;
    size_t frame_bytes;                         /* of one copy of all of them */
    struct hand_over *rings;
    uint32_t *places;                           /* what lies in the rings: numbers of frames */
    struct bench_member *members;
    _Alignas(HAND_OVER_LINE) _Atomic uint32_t ready;    /* threads that may begin */
    _Atomic uint32_t through;                   /* those that have no more frames of their own */
    _Atomic bool given_up;                      /* one could not be made */
};

/* Where a frame was handed over: the thread, and the count of its ring behind the frame. */
struct handed {
    const struct hand_over *ring;
    uint32_t count;
};

struct bench_member {
    _Alignas(HAND_OVER_LINE) struct bench_team *team;
    struct p4_pipeline *state;
    struct scratch scratch;
    uint32_t number;
    uint32_t *mine, count;                      /* the frames that this thread receives */
    struct handed *handed;                      /* of all frames */
    uint64_t sent;
    uint32_t collected;                         /* frames of others that are being fetched */
    struct p4_arrival arrivals[BENCH_TURN];
    _Alignas(HAND_OVER_LINE) _Atomic uint32_t passes;
};

static struct hand_over *ring_between(const struct bench_team *team, uint32_t of, uint32_t to)
{
    return &team->rings[of * team->threads + to];
}

static uint32_t *places_between(const struct bench_team *team, uint32_t of, uint32_t to)
{
    return team->places + (size_t)(of * team->threads + to) * HAND_OVER_SLOTS;
}

static struct p4_arrival arrival_of(const struct bench_team *team, uint32_t number)
{
    const struct bench_frame *frame = &team->run->frame[number / BENCH_COPIES];
    const uint8_t *copy = team->frames + number % BENCH_COPIES * team->frame_bytes;
    return (struct p4_arrival){copy + frame->offset, frame->length, frame->port};
}

static void member_process(struct bench_member *member, const struct p4_arrival *arrivals, uint32_t count,
                           uint64_t now_us)
{
    const struct bench_team *team = member->team;
    uint64_t sent = 0;
    for (uint32_t n = 0; n < count; n++)
        sent += process(team->program, member->state, team->run, &member->scratch, &arrivals[n], now_us);
    member->sent += sent;
}

/* Take what others have handed over, up to a turn, and begin to fetch it: the beginnings of the frames are in the
   caches of the threads that received them. */
static void member_collect(struct bench_member *member)
{
    const struct bench_team *team = member->team;
    for (uint32_t of = 0; of < team->threads; of++) {
        struct hand_over *ring = ring_between(team, of, member->number);
        const uint32_t *places = places_between(team, of, member->number);
        uint32_t place;
        while (of != member->number && member->collected < BENCH_TURN && hand_over_take(ring, &place)) {
            struct p4_arrival *arrival = &member->arrivals[member->collected++];
            *arrival = arrival_of(team, places[place]);
            __builtin_prefetch(arrival->frame);
            __builtin_prefetch(arrival->frame + HAND_OVER_LINE);
        }
    }
}

/* Process what was collected; returns whether there was anything. */
static bool member_serve(struct bench_member *member, uint64_t now_us)
{
    const struct bench_team *team = member->team;
    uint32_t count = member->collected;
    if (!count)
        return false;
    member_process(member, member->arrivals, count, now_us);
    member->collected = 0;
    for (uint32_t of = 0; of < team->threads; of++)
        if (of != member->number)
            hand_over_give_back(ring_between(team, of, member->number));
    return true;
}

/* A thread that waits for another does what it has been handed over, or lets others run. */
static void member_wait(struct bench_member *member, uint64_t now_us)
{
    member_collect(member);
    if (!member_serve(member, now_us))
        sched_yield();
}

static bool is_in_front(const struct bench_member *member, uint32_t pass)
{
    const struct bench_team *team = member->team;
    for (uint32_t i = 0; i < team->threads; i++)
        if (atomic_load_explicit(&team->members[i].passes, memory_order_acquire) + team->run->in_front < pass)
            return true;
    return false;
}

/* Whether the thread that a frame was handed over to is done with it. */
static bool is_back(const struct handed *handed)
{
    const struct hand_over *ring = handed->ring;
    return !ring || (int32_t)(atomic_load_explicit(&ring->taken, memory_order_acquire) - handed->count) >= 0;
}

static void member_hand_over(struct bench_member *member, uint32_t number, uint32_t to, uint64_t now_us)
{
    const struct bench_team *team = member->team;
    struct hand_over *ring = ring_between(team, member->number, to);
    uint32_t place;
    while (!hand_over_place(ring, &place)) {
        hand_over_show(ring);
        member_wait(member, now_us);
    }
    places_between(team, member->number, to)[place] = number;
    member->handed[number] = (struct handed){ring, ring->written};
}

/* Receive our frames from `first` to `end`, find out whose they are, and hand over those of others; returns how many
   are ours, which `ours` lists. */
static uint32_t member_divide(struct bench_member *member, uint32_t first, uint32_t end, struct p4_arrival *ours,
                              uint32_t pass)
{
    const struct bench_team *team = member->team;
    struct p4_arrival arrivals[BENCH_BURST];
    uint64_t slots[BENCH_BURST];
    uint32_t count = 0, copy = pass % BENCH_COPIES;
    for (uint32_t n = first; n < end; n++) {
        uint32_t number = member->mine[n] * BENCH_COPIES + copy;
        while (!is_back(&member->handed[number]))
            member_wait(member, pass);
        member->handed[number].ring = NULL;
        arrivals[n - first] = arrival_of(team, number);
        slots[n - first] = P4_NO_SLOT;
        raise_number((uint8_t *)arrivals[n - first].frame + team->run->number_offset,
                     BENCH_COPIES * team->run->number_step);
    }
    for (uint32_t n = end; n < end + BENCH_BURST; n++) {
        uint32_t next = n < member->count ? n : n - member->count, other = n < member->count ? copy : !copy;
        if (next < member->count)
            __builtin_prefetch(arrival_of(team, member->mine[next] * BENCH_COPIES + other).frame, 1);
    }
    if (team->program->slots && team->threads > 1)
        team->program->slots(member->state, arrivals, end - first, slots);
    for (uint32_t n = first; n < end; n++) {
        const struct p4_arrival *arrival = &arrivals[n - first];
        uint32_t to = team->threads == 1 ? 0 : hand_over_to(&team->map, slots[n - first], arrival);
        if (to == member->number)
            ours[count++] = *arrival;
        else
            member_hand_over(member, member->mine[n] * BENCH_COPIES + copy, to, pass);
    }
    for (uint32_t i = 0; i < team->threads; i++)
        hand_over_show(ring_between(team, member->number, i));
    return count;
}

static void *member_run(void *context)
{
    struct bench_member *member = context;
    struct bench_team *team = member->team;
    struct p4_arrival ours[BENCH_BURST];
    uint32_t passes = team->run->passes;
    atomic_fetch_add(&team->ready, 1);
    while (atomic_load(&team->ready) < team->threads)
        sched_yield();
    if (atomic_load(&team->given_up))
        return NULL;
    for (uint32_t pass = 0; pass < passes; pass++) {
        while (is_in_front(member, pass))
            member_wait(member, pass);
        for (uint32_t first = 0; first < member->count; first += BENCH_BURST) {
            uint32_t end = first + BENCH_BURST < member->count ? first + BENCH_BURST : member->count;
            uint32_t count = member_divide(member, first, end, ours, pass);
            for (uint32_t n = 0; n < count || n == 0; n += BENCH_TURN) {
                member_collect(member);         /* it comes while our own are processed */
                member_process(member, ours + n, n + BENCH_TURN < count ? BENCH_TURN : count - n, pass);
                member_serve(member, pass);
            }
        }
        atomic_store_explicit(&member->passes, pass + 1, memory_order_release);
    }
    atomic_fetch_add(&team->through, 1);
    bool all_through;
    do {                                        /* whoever is through has shown all that it hands over */
        all_through = atomic_load(&team->through) == team->threads;
        member_wait(member, passes);
    } while (!all_through);
    do
        member_collect(member);
    while (member_serve(member, passes));
    return NULL;
}

static uint64_t wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int member_open(struct bench_member *member, struct bench_team *team, uint32_t number,
                       struct p4_pipeline *state)
{
    const struct bench_run *run = team->run;
    *member = (struct bench_member){.team = team, .state = state, .number = number};
    member->mine = calloc(run->frame_count, sizeof *member->mine);
    member->handed = calloc((size_t)BENCH_COPIES * run->frame_count, sizeof *member->handed);
    if (scratch_open(&member->scratch, team->program) || !member->mine || !member->handed)
        return -1;
    for (uint32_t n = 0; n < run->frame_count; n++)
        if (run->frame[n].port % team->threads == number)
            member->mine[member->count++] = n;
    return 0;
}

static void member_close(struct bench_member *member)
{
    scratch_close(&member->scratch);
    free(member->mine);
    free(member->handed);
}

/* Copy the frames: numbers of the first copy are right when they have been raised once, of the next in the next pass. */
static void team_copy_frames(struct bench_team *team)
{
    const struct bench_run *run = team->run;
    for (uint32_t copy = 0; copy < BENCH_COPIES; copy++) {
        uint8_t *frames = team->frames + copy * team->frame_bytes;
        memcpy(frames, run->frames, team->frame_bytes);
        for (uint32_t n = 0; n < run->frame_count; n++)
            raise_number(frames + run->frame[n].offset + run->number_offset,
                         (copy + 1 - BENCH_COPIES) * run->number_step);
    }
}

static bool team_open(struct bench_team *team)
{
    size_t pairs = (size_t)team->threads * team->threads;
    for (uint32_t n = 0; n < team->run->frame_count; n++) {
        size_t end = team->run->frame[n].offset + team->run->frame[n].length;
        team->frame_bytes = end > team->frame_bytes ? end : team->frame_bytes;
    }
    team->frame_bytes = (team->frame_bytes + HAND_OVER_LINE - 1) / HAND_OVER_LINE * HAND_OVER_LINE;
    team->frames = aligned_alloc(HAND_OVER_LINE, BENCH_COPIES * team->frame_bytes);
    team->rings = aligned_alloc(HAND_OVER_LINE, pairs * sizeof *team->rings);
    team->places = aligned_alloc(HAND_OVER_LINE, pairs * HAND_OVER_SLOTS * sizeof *team->places);
    team->members = aligned_alloc(HAND_OVER_LINE, team->threads * sizeof *team->members);
    if (!team->frames || !team->rings || !team->places || !team->members)
        return false;
    hand_over_share(&team->map, team->threads);
    memset(team->rings, 0, pairs * sizeof *team->rings);
    team_copy_frames(team);
    return true;
}

/* The same on several threads, each with one of `states`: a thread receives the frames of its ports, and hands those of
   others' slots over. `nanoseconds` is by the wall clock. 0, or -1: no memory, or no thread. */
__attribute__((visibility("default"))) int bench_threads(const struct p4_program *program,
                                                         struct p4_pipeline *const *states, uint32_t threads,
                                                         struct bench_run *run)
{
    struct bench_team team = {.program = program, .run = run, .threads = threads};
    pthread_t ids[BENCH_THREADS];
    uint32_t opened = 0, started = 0;
    bool failed = threads > BENCH_THREADS || !team_open(&team);
    for (; opened < threads && !failed; opened++)
        failed = member_open(&team.members[opened], &team, opened, states[opened]) != 0;
    uint64_t start = wall_clock();
    for (; started < threads && !failed; started++)
        failed = pthread_create(&ids[started], NULL, member_run, &team.members[started]) != 0;
    if (failed) {
        atomic_store(&team.given_up, true);
        atomic_fetch_add(&team.ready, threads);
    }
    for (uint32_t i = 0; i < started && ids[i]; i++)
        pthread_join(ids[i], NULL);
    run->nanoseconds = wall_clock() - start;
    run->sent = 0;
    for (uint32_t i = 0; i < opened; i++) {
        run->sent += team.members[i].sent;
        member_close(&team.members[i]);
    }
    for (uint32_t n = 0; n < run->frame_count; n++)     /* so that the next run goes on from here */
        raise_number(run->frames + run->frame[n].offset + run->number_offset, run->passes * run->number_step);
    free(team.frames);
    free(team.rings);
    free(team.places);
    free(team.members);
    return failed ? -1 : 0;
}

struct bench_sums {
    uint8_t *frames;
    const struct bench_frame *frame;
    uint32_t frame_count;
    uint32_t values_offset, lanes;          /* where each frame has that many 32-bit big-endian values */
    uint32_t number_offset, number_step;
    uint32_t slots, contributors;           /* a sum is over frames of the same number */
    uint32_t passes;
    uint64_t nanoseconds;
};

static uint32_t number_at(const uint8_t *at)
{
    uint32_t number;
    memcpy(&number, at, 4);
    return __builtin_bswap32(number);
}

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
__attribute__((visibility("default"))) int bench_sums(struct bench_sums *run)
{
    uint32_t lanes = run->lanes, size = (lanes * 4 + 63) / 64 * 64;
    uint8_t *slots = aligned_alloc(64, (size_t)run->slots * size);
    uint32_t *out = aligned_alloc(64, size);
    uint32_t *met = calloc(run->slots, sizeof *met);
    if (slots && out && met) {
        memset(slots, 0, (size_t)run->slots * size);
        uint64_t start = now();
        for (uint32_t pass = 0; pass < run->passes; pass++) {
            raise_numbers(run->frame, run->frame_count, run->frames, run->number_offset, run->number_step);
            for (uint32_t n = 0; n < run->frame_count; n++) {
                uint8_t *bytes = run->frames + run->frame[n].offset;
                uint32_t index = number_at(bytes + run->number_offset) % run->slots;
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
                    __asm__ volatile("" : : "r"(out) : "memory");   /* each copy is somebody's */
                }
            }
        }
        run->nanoseconds = now() - start;
    }
    int failed = !slots || !out || !met;
    free(slots);
    free(out);
    free(met);
    return -failed;
}
