/* Runs frames that a test has written beside it through a program on one thread and, with the same entries, on
 * several, each of which processes those of its slots, and compares all registers and counters. Built with the program,
 * frame_loop.c and, where there is one, a sanitizer.
 *
 * usage: pipeline_threads THREADS PASSES COMPARE
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame_loop.c"
#include "hand_over.h"
#include "program.c"
#include "traffic.h"

static struct bench_run make_run(uint32_t passes)
{
    uint8_t *bytes = malloc(sizeof frame_bytes);
    memcpy(bytes, frame_bytes, sizeof frame_bytes);
    return (struct bench_run){.frames = bytes, .frame = frames, .frame_count = FRAMES, .replica = replicas,
                              .replica_count = REPLICAS, .number_offset = NUMBER_OFFSET,
                              .number_step = NUMBER_STEP, .passes = passes};
}

static struct p4_pipeline *must(struct p4_pipeline *pipeline)
{
    if (!pipeline)
        exit(3);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (p4_control_insert(pipeline, entries[i].table, entries[i].match, 0, entries[i].action, entries[i].args))
            exit(3);
    return pipeline;
}

static uint64_t registers_that_differ(struct p4_pipeline *one, struct p4_pipeline *other)
{
    uint64_t differing = 0, a[2], b[2];
    for (uint32_t id = 0; p4_registers[id].name; id++) {
        for (uint64_t i = 0; i < p4_registers[id].size; i++) {
            p4_control_read_register(one, id, i, a);
            p4_control_read_register(other, id, i, b);
            differing += a[0] != b[0] || a[1] != b[1];
        }
    }
    return differing;
}

static uint64_t counters_that_differ(struct p4_pipeline *one, struct p4_pipeline **others, uint32_t threads)
{
    uint64_t differing = 0;
    for (uint32_t id = 0; p4_counters[id].name; id++) {
        for (uint64_t i = 0; i < 2 * p4_counters[id].size; i++) {
            uint64_t sum = 0;
            for (uint32_t t = 0; t < threads; t++)
                sum += p4_control_counter(others[t], id)[i];
            differing += p4_control_counter(one, id)[i] != sum;
        }
    }
    return differing;
}

struct member {
    pthread_t id;
    struct p4_pipeline *state;
    struct bench_run run;
    const struct hand_over_map *map;
    uint32_t number;
    bool failed;
};

/* Process all frames of all passes whose slots are this thread's. */
static void *member_run(void *context)
{
    struct member *member = context;
    const struct bench_run *run = &member->run;
    struct scratch scratch;
    member->failed = scratch_open(&scratch, &p4_program);
    for (uint32_t pass = 0; pass < run->passes && !member->failed; pass++) {
        raise_numbers(run->frame, run->frame_count, run->frames, run->number_offset, run->number_step);
        for (uint32_t n = 0; n < run->frame_count; n++) {
            struct p4_arrival arrival = {run->frames + run->frame[n].offset, run->frame[n].length, run->frame[n].port};
            uint64_t slot = P4_NO_SLOT;
            p4_program.slots(member->state, &arrival, 1, &slot);
            if (hand_over_to(member->map, slot, &arrival) == member->number)
                member->run.sent += process(&p4_program, member->state, run, &scratch, &arrival, pass);
        }
    }
    scratch_close(&scratch);
    return NULL;
}

int main(int count, char **arguments)
{
    uint32_t threads = count == 4 ? (uint32_t)atoi(arguments[1]) : 0;
    if (threads < 1 || threads > 8)
        return 2;
    struct bench_run once = make_run((uint32_t)atoi(arguments[2]));
    struct p4_pipeline *one = must(p4_program.create(1)), *states[8];
    struct member members[8];
    struct hand_over_map map;
    uint64_t sent = 0;
    hand_over_share(&map, threads);
    for (uint32_t t = 0; t < threads; t++) {
        states[t] = must(t ? p4_program.twin(states[0], t) : p4_program.create(1));
        members[t] = (struct member){.state = states[t], .run = make_run(once.passes), .map = &map, .number = t};
    }
    if (bench_pipeline(&p4_program, one, &once))
        return 3;
    for (uint32_t t = 0; t < threads; t++)
        if (pthread_create(&members[t].id, NULL, member_run, &members[t]))
            return 3;
    for (uint32_t t = 0; t < threads; t++) {
        pthread_join(members[t].id, NULL);
        if (members[t].failed)
            return 3;
        sent += members[t].run.sent;
        free(members[t].run.frames);
    }
    if (atoi(arguments[3]))
        printf("%llu %llu %llu\n", (unsigned long long)registers_that_differ(one, states[0]),
               (unsigned long long)counters_that_differ(one, states, threads), (unsigned long long)(once.sent - sent));
    for (uint32_t t = threads; t-- > 0;)
        p4_program.destroy(states[t]);
    p4_program.destroy(one);
    free(once.frames);
    return 0;
}
