/* Further threads of an engine.
 *
 * The first thread receives from all ports, keeps the packets of its share and hands the others over; each helper
 * processes what it was handed over, and sends it by the same sockets. A helper is an engine: its outboxes, counters,
 * scratch packets and pipeline are its own, so threads meet in the registers alone, each in its slots. Whoever holds
 * `engine_lock` holds all threads out, with nothing left in the rings: there packets may be divided differently from
 * then on.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_internal.h"

#define HELPER_TURN 64              /* packets that are processed before the outboxes are flushed */
#define BLOCKED_MS 1                /* a socket that was full is tried again after so long */
#define FIRST_KEEPS 4               /* the first thread, which also receives, keeps one share in so many */

static struct engine *helper_engine(struct engine *first)
{
    struct engine *engine = engine_create();
    if (!engine)
        return NULL;
    free(engine->groups);
    free(engine->sessions);
    free(engine->exclusions);
    close(engine->cpu_fd);
    engine->groups = first->groups;
    engine->sessions = first->sessions;
    engine->exclusions = first->exclusions;
    engine->cpu_fd = first->cpu_fd;
    engine->start_ns = first->start_ns;
    engine->first = first;
    return engine;
}

void engine_undivide(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        struct helper *helper = &engine->helpers[i];
        helper->engine->groups = helper->engine->sessions = helper->engine->exclusions = NULL;
        helper->engine->cpu_fd = -1;
        engine_destroy(helper->engine);
        free(helper->packets);
    }
    free(engine->helpers);
    engine->helpers = NULL;
    engine->helper_count = 0;
}

/* ---------------------------------------------------------------- work */

/* Process up to `most` packets that were handed over; returns how many. */
static uint32_t helper_work(struct helper *helper, uint32_t most)
{
    struct engine *engine = helper->engine;
    uint32_t place, count = 0;
    while (count < most && hand_over_take(&helper->ring, &place)) {
        const struct handed_over *packet = &helper->packets[place];
        tm_ingress(engine, engine->ports[packet->port], packet->frame, packet->length, NULL);
        count++;
    }
    hand_over_give_back(&helper->ring);
    return count;
}

static bool resume_blocked(struct engine *engine)
{
    bool any = false;
    for (int i = 0; i < ENGINE_PORTS && engine->newly_blocked; i++) {
        struct port *port = engine->ports[i];
        if (port && port->blocked && !port->resume_scheduled)
            port_resume(port);
        any |= port && port->blocked;
    }
    engine->newly_blocked = any;
    return any;
}

/* How long there is nothing to do but for what is handed over, in milliseconds; -1: for ever. */
static int patience(const struct engine *engine)
{
    if (engine->newly_blocked)
        return BLOCKED_MS;
    if (!engine->heap_size)
        return -1;
    uint64_t now_ns = clock_ns() - engine->start_ns, next_ns = engine->heap[0].time_ns;
    return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / 1000000 + 1);
}

static void helper_rest(struct helper *helper, int patience_ms)
{
    struct pollfd woken = {.fd = helper->engine->wake_fd, .events = POLLIN};
    atomic_store_explicit(&helper->asleep, true, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    bool is_empty = atomic_load_explicit(&helper->ring.shown, memory_order_relaxed)
                    == atomic_load_explicit(&helper->ring.taken, memory_order_relaxed);
    if (is_empty && !atomic_load(&helper->engine->first->stopping))
        poll(&woken, 1, patience_ms);
    atomic_store_explicit(&helper->asleep, false, memory_order_relaxed);
    uint64_t count;
    (void)!read(woken.fd, &count, sizeof count);
}

static void *helper_serve(void *context)
{
    struct helper *helper = context;
    struct engine *engine = helper->engine;
    while (!atomic_load_explicit(&engine->first->stopping, memory_order_relaxed)) {
        lock_turn(engine);
        run_events(engine, clock_ns() - engine->start_ns);
        uint32_t count = helper_work(helper, HELPER_TURN);
        flush_ports(engine);
        resume_blocked(engine);
        int patience_ms = count ? 0 : patience(engine);
        unlock_turn(engine);
        if (patience_ms)
            helper_rest(helper, patience_ms);
    }
    return NULL;
}

/* ---------------------------------------------------------------- all threads */

static void helpers_settle(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        struct helper *helper = &engine->helpers[i];
        helper->engine->now_ns = engine->now_ns > helper->engine->now_ns ? engine->now_ns : helper->engine->now_ns;
        if (helper_work(helper, HAND_OVER_SLOTS))
            flush_ports(helper->engine);
    }
}

static const char *why_undivided(const struct engine *engine)
{
    const struct p4_program *program = engine->program;
    for (int i = 0; i < ENGINE_PORTS; i++) {
        const struct port *port = engine->ports[i];
        if (port && port->tx.config.rate_bps)
            return "a port has a rate";
        if (port && port->flush && !port->twin)
            return "a port is shared memory";
    }
    if (engine->capture)
        return "frames are captured";
    if (!program)
        return "there is no program";
    if (program->one_thread)
        return program->one_thread;
    if (program->slots && !program->divides(engine->pipeline))
        return "the slots of packets depend on registers as long as tables are as they are";
    for (uint32_t i = 0; i < engine->helper_count; i++)
        if (engine->helpers[i].engine->program != program)
            return "there is no memory for more";
    return NULL;
}

static void helpers_divide(struct engine *engine)
{
    engine->undivided = why_undivided(engine);
}

void helpers_run(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        struct helper *helper = &engine->helpers[i];
        if (pthread_create(&helper->thread, NULL, helper_serve, helper))
            helper->thread = 0;                 /* the lock then does its work, whenever somebody takes it */
    }
}

void helpers_end(struct engine *engine)
{
    uint64_t one = 1;
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        struct helper *helper = &engine->helpers[i];
        (void)!write(helper->engine->wake_fd, &one, sizeof one);
        if (helper->thread)
            pthread_join(helper->thread, NULL);
        helper->thread = 0;
    }
}

/* ---------------------------------------------------------------- ports, programs */

static void close_twin(struct port *port)
{
    free(port->io);                 /* the socket is the first thread's */
}

static bool add_twin(struct engine *engine, uint32_t number, const struct port *of)
{
    struct engine_impairments none = {0}, tx = of->tx.config;
    char error[ENGINE_ERROR_BYTES];
    if (engine->ports[of->number])      /* of a port that could not be served */
        port_remove(engine->ports[of->number]);
    tx.rate_bps = 0;                    /* ports with one are not used by several threads */
    tx.seed += number;
    struct port *port = port_add(engine, of->number, &none, &tx, of->outbox.capacity, error);
    if (!port)
        return false;
    port->close = close_twin;
    port->is_cpu = of->is_cpu;
    port->outbox.most = of->outbox.most;
    port->fd = of->fd;
    port->flush = of->flush;
    port->io = of->twin ? of->twin(of) : NULL;
    return port->io || !of->twin;
}

bool helpers_add_port(struct port *port)
{
    struct engine *engine = port->engine;
    bool added = true;
    for (uint32_t i = 0; i < engine->helper_count; i++)
        added &= add_twin(engine->helpers[i].engine, i + 1, port);
    if (engine->helper_count)
        helpers_divide(engine);
    return added;
}

int engine_divide(struct engine *engine, uint32_t threads)
{
    if (threads < 2)
        return 0;
    uint32_t wanted = threads - 1;
    engine->helpers = aligned_alloc(HAND_OVER_LINE, wanted * sizeof *engine->helpers);
    if (!engine->helpers)
        return -1;
    memset(engine->helpers, 0, wanted * sizeof *engine->helpers);
    for (uint32_t i = 0; i < wanted; i++) {
        struct helper *helper = &engine->helpers[i];
        helper->engine = helper_engine(engine);
        if (!helper->engine) {
            engine_undivide(engine);
            return -1;
        }
        engine->helper_count++;
        helper->packets = aligned_alloc(HAND_OVER_LINE, HAND_OVER_SLOTS * sizeof *helper->packets);
        if (!helper->packets) {
            engine_undivide(engine);
            return -1;
        }
    }
    engine->settle = helpers_settle;
    engine->divide = helpers_divide;
    uint32_t next = 0;
    for (uint32_t i = 0; i < HAND_OVER_SHARES; i++)
        engine->map.thread[i] = (uint8_t)(i % FIRST_KEEPS ? 1 + next++ % wanted : 0);
    helpers_divide(engine);
    return 0;
}

int engine_load_threads(struct engine *engine, struct p4_pipeline *const *pipelines)
{
    int failed = 0;
    engine_lock(engine);
    for (uint32_t i = 0; i < engine->helper_count; i++)
        failed |= engine_load(engine->helpers[i].engine, pipelines ? engine->program : NULL,
                              pipelines ? pipelines[i] : NULL);
    engine_unlock(engine);
    return failed;
}

const char *engine_undivided(struct engine *engine)
{
    engine_lock(engine);
    const char *why = engine->helper_count ? engine->undivided : "there is only one";
    if (engine->helper_count)
        why = engine->undivided = why_undivided(engine);
    engine_unlock(engine);
    return why;
}
