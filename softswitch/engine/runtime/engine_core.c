/* The engine as an object: life, program, groups, statistics, frames from and for memory. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine_internal.h"

/* Scratch packets in use per turn: the one in ingress, its clone, a copy. */
#define SCRATCH_PACKETS (3 * (ENGINE_MAX_DEPTH + 2))

/* ---------------------------------------------------------------- life */

struct engine *engine_create(void)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return NULL;
    pthread_mutex_init(&engine->gate, NULL);
    pthread_mutex_init(&engine->mutex, NULL);
    engine->groups = calloc(65536, sizeof *engine->groups);
    engine->sessions = calloc(65536, sizeof *engine->sessions);
    engine->exclusions = calloc(65536, sizeof *engine->exclusions);
    engine->own_work.frame = malloc(P4_MAX_FRAME);
    engine->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    engine->cpu_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    engine->start_ns = clock_ns();
    engine->armed_ns = ENGINE_NEVER;
    engine->frames = &engine->own_frames;
    engine->work = &engine->own_work;
    if (!engine->groups || !engine->sessions || !engine->exclusions || !engine->own_work.frame || engine->wake_fd < 0 || engine->cpu_fd < 0) {
        engine_destroy(engine);
        return NULL;
    }
    return engine;
}

static void free_packets(struct engine *engine)
{
    struct p4_packet **packets = engine->own_work.packets;
    for (uint32_t i = 0; packets && i < SCRATCH_PACKETS; i++)
        free(packets[i]);
    free(packets);
    engine->own_work.packets = NULL;
}

void engine_destroy(struct engine *engine)
{
    tm_discard_queues(engine);
    for (int i = 0; i < ENGINE_PORTS; i++)
        if (engine->ports[i])
            port_remove(engine->ports[i]);
    for (size_t i = 0; i < engine->heap_size; i++)
        frame_release(engine->frames, engine->heap[i].frame);
    frames_free(&engine->own_frames);
    for (uint32_t i = 0; i < engine->numbers; i++) {
        free(engine->groups[i]);
        free(engine->sessions[i]);
        free(engine->exclusions[i]);
    }
    free_packets(engine);
    free(engine->capture);
    free(engine->heap);
    free(engine->groups);
    free(engine->sessions);
    free(engine->exclusions);
    free(engine->own_work.frame);
    for (int i = 0; i < IO_BUFFERS; i++)
        free(engine->io_buffers[i]);
    if (engine->wake_fd >= 0)
        close(engine->wake_fd);
    if (engine->cpu_fd >= 0)
        close(engine->cpu_fd);
    pthread_mutex_destroy(&engine->mutex);
    pthread_mutex_destroy(&engine->gate);
    free(engine);
}

/* ---------------------------------------------------------------- program and groups */

int engine_load(struct engine *engine, const struct p4_program *program, struct p4_pipeline *pipeline)
{
    if ((program && program->abi != P4_ABI) || engine->frames != &engine->own_frames)
        return -1;
    engine_lock(engine);
    tm_discard_queues(engine);
    free_packets(engine);
    engine->program = NULL;
    engine->work = &engine->own_work;
    if (program) {
        size_t size = ((size_t)program->packet_size + 63) & ~(size_t)63;
        struct workspace *work = engine->work;
        work->packets = calloc(SCRATCH_PACKETS, sizeof *work->packets);
        for (uint32_t i = 0; work->packets && i < SCRATCH_PACKETS; i++) {
            work->packets[i] = aligned_alloc(64, size);
            if (!work->packets[i])
                free_packets(engine);
        }
        if (work->packets) {
            engine->program = program;
            engine->pipeline = pipeline;
        }
    }
    capture_program(engine);
    bool loaded = engine->program == program;
    engine_unlock(engine);
    return loaded ? 0 : -1;
}

static int set_members(struct engine *engine, struct group **table, uint16_t number,
                       const struct engine_member *members, uint32_t count, uint32_t truncate)
{
    struct group *group = NULL;
    if (members) {
        group = malloc(sizeof *group + count * sizeof *members);
        if (!group)
            return -1;
        group->count = count;
        group->truncate = truncate;
        memcpy(group->members, members, count * sizeof *members);
    }
    engine_lock(engine);
    struct group *old = table[number];
    table[number] = group;
    if (engine->numbers <= number)
        engine->numbers = number + 1u;
    engine_unlock(engine);
    free(old);
    return 0;
}

int engine_set_group(struct engine *engine, uint16_t group, const struct engine_member *members,
                     uint32_t count)
{
    return set_members(engine, engine->groups, group, members, count, 0);
}

int engine_set_exclusion(struct engine *engine, uint16_t id, const struct engine_member *members,
                         uint32_t count)
{
    return set_members(engine, engine->exclusions, id, members, count, 0);
}

int engine_set_session(struct engine *engine, uint16_t session, const struct engine_member *members,
                       uint32_t count, uint32_t truncate)
{
    return set_members(engine, engine->sessions, session, members, count, truncate);
}

/* ---------------------------------------------------------------- frames from and for memory */

static void wake(struct engine *engine)
{
    uint64_t one = 1;
    if (atomic_load(&engine->running))
        (void)!write(engine->wake_fd, &one, sizeof one);
}

void engine_inject(struct engine *engine, uint16_t number, const uint8_t *bytes, const uint32_t *lengths,
                   uint32_t count, uint64_t now_us)
{
    engine_lock(engine);
    run_events(engine, now_us * 1000);
    struct port *port = number < ENGINE_PORTS ? engine->ports[number] : NULL;
    uint32_t seen = port && looks_ahead(engine) ? 0 : count;    /* frames looked at: P4_AHEAD more than received */
    const uint8_t *later = bytes;
    for (uint32_t i = 0; port && i < count; i++) {
        for (; seen < count && seen <= i + P4_AHEAD; later += lengths[seen++])
            look_ahead(port, later, lengths[seen]);
        port_receive(port, bytes, lengths[i], NULL);
        bytes += lengths[i];
    }
    flush_ports(engine);
    engine_unlock(engine);
    wake(engine);       /* the next event may have changed */
}

void engine_advance(struct engine *engine, uint64_t now_us)
{
    engine_lock(engine);
    run_events(engine, now_us * 1000);
    flush_ports(engine);
    engine_unlock(engine);
}

uint64_t engine_next_event(struct engine *engine)
{
    engine_lock(engine);
    uint64_t next = engine->heap_size ? (engine->heap[0].time_ns + 999) / 1000 : ENGINE_NEVER;
    engine_unlock(engine);
    return next;
}

/* A memory port, or NULL. */
static struct port *memory_port(const struct engine *engine, uint16_t number)
{
    struct port *port = number < ENGINE_PORTS ? engine->ports[number] : NULL;
    return port && !port->flush ? port : NULL;
}

uint32_t engine_pending(struct engine *engine, uint16_t number, uint64_t *bytes)
{
    engine_lock(engine);
    const struct port *port = memory_port(engine, number);
    uint32_t count = port ? port->outbox.count : 0;
    *bytes = port ? port->outbox.used : 0;
    engine_unlock(engine);
    return count;
}

uint32_t engine_drain(struct engine *engine, uint16_t number, uint8_t *bytes, uint32_t *lengths,
                      uint64_t *times_us, uint32_t count, uint64_t capacity)
{
    uint32_t taken = 0;
    size_t size = 0;
    engine_lock(engine);
    struct port *port = memory_port(engine, number);
    if (port) {
        struct outbox *box = &port->outbox;
        while (taken < box->count && taken < count && size + box->lengths[taken] <= capacity)
            size += box->lengths[taken++];
        memcpy(bytes, box->bytes, size);
        memcpy(lengths, box->lengths, taken * sizeof *lengths);
        memcpy(times_us, box->times_us, taken * sizeof *times_us);
        box->sent = size;
        box->first = taken;
        outbox_forget_sent(port);
    }
    engine_unlock(engine);
    return taken;
}

int engine_wait_cpu(struct engine *engine, int timeout_ms)
{
    struct pollfd descriptor = {.fd = engine->cpu_fd, .events = POLLIN};
    poll(&descriptor, 1, timeout_ms);
    uint64_t count;
    bool ready = read(engine->cpu_fd, &count, sizeof count) == (ssize_t)sizeof count;
    return atomic_load(&engine->stopping) ? -1 : ready;
}

/* ---------------------------------------------------------------- statistics */

void engine_port_statistics(struct engine *engine, uint16_t number, struct engine_statistics *out)
{
    *out = (struct engine_statistics){0};
    engine_lock(engine);
    struct port *port = number < ENGINE_PORTS ? engine->ports[number] : NULL;
    if (port)
        *out = port->statistics;
    if (port && port->drops)
        out->rx_socket_full = port->drops(port);
    engine_unlock(engine);
}

void engine_switch_statistics(struct engine *engine, struct engine_statistics *out)
{
    engine_lock(engine);
    *out = engine->statistics;
    engine_unlock(engine);
}
