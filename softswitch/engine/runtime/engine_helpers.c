/* Further threads of an engine.
 *
 * The first thread receives from all ports, keeps the packets of its share and hands the others over; each helper
 * processes what it was handed over, and sends it by the same sockets. A helper is an engine: its outboxes, counters,
 * scratch packets and pipeline are its own, so threads meet in the registers alone, each in its slots. Whoever holds
 * `engine_lock` holds all threads out, with nothing left in the rings: there packets may be divided differently from
 * then on.
 *
 * A copy to another thread pays only if there is a processor for it. So the first thread is alone until many packets
 * come in turn after turn. It is alone again for a while, and does the helper's work itself, if a helper does not get on
 * with it, as other processes have the processors; each time that happens soon, for twice as long. It changes its mind
 * only when no frame waits in an outbox of those who had it, so that packets of a flow leave in their order.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine_internal.h"

#define HELPER_TURN 64              /* packets that are processed before the outboxes are flushed */
#define HELPER_BATCH 16             /* and before their places are given back */
#define BLOCKED_NS 1000000          /* a socket that was full is tried again after so long */
#define BUSY_TURNS 16               /* so many with many packets, and packets are divided */
#define QUIET_TURNS 64              /* so many with few, and they are not any more */
#define ALONE_LEAST_NS UINT64_C(10000000)
#define ALONE_MOST_NS UINT64_C(1000000000)
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
        if (++count % HELPER_BATCH == 0)
            hand_over_give_back(&helper->ring);
    }
    hand_over_give_back(&helper->ring);
    return count;
}

static void resume_blocked(struct engine *engine)
{
    bool any = false;
    for (int i = 0; i < ENGINE_PORTS && engine->newly_blocked; i++) {
        struct port *port = engine->ports[i];
        if (port && port->blocked && !port->resume_scheduled)
            port_resume(port);
        any |= port && port->blocked;
    }
    engine->newly_blocked = any;
}

/* How long there is nothing to do but for what is handed over. */
static uint64_t patience(const struct engine *engine)
{
    uint64_t now_ns = clock_ns() - engine->start_ns, next_ns = ENGINE_NEVER;
    if (engine->heap_size)
        next_ns = engine->heap[0].time_ns;
    if (engine->newly_blocked && next_ns > now_ns + BLOCKED_NS)
        next_ns = now_ns + BLOCKED_NS;
    return next_ns == ENGINE_NEVER ? ENGINE_NEVER : next_ns > now_ns ? next_ns - now_ns : 0;
}

static void helper_rest(struct helper *helper, uint64_t patience_ns)
{
    struct timespec patience = {(time_t)(patience_ns / UINT64_C(1000000000)),
                                (long)(patience_ns % UINT64_C(1000000000))};
    struct pollfd woken = {.fd = helper->engine->wake_fd, .events = POLLIN};
    atomic_store_explicit(&helper->asleep, true, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    bool is_empty = atomic_load_explicit(&helper->ring.shown, memory_order_relaxed)
                    == atomic_load_explicit(&helper->ring.taken, memory_order_relaxed);
    if (is_empty && !atomic_load(&helper->engine->first->stopping))
        ppoll(&woken, 1, patience_ns == ENGINE_NEVER ? NULL : &patience, NULL);
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
        uint64_t patience_ns = count ? 0 : patience(engine);
        unlock_turn(engine);
        if (patience_ns)
            helper_rest(helper, patience_ns);
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

/* ---------------------------------------------------------------- when it pays */

/* Whether all frames have left that were sent to ports with a socket. */
static bool has_sent(const struct engine *engine)
{
    for (int i = 0; i < ENGINE_PORTS; i++) {
        const struct port *port = engine->ports[i];
        if (port && port->flush && port->outbox.first != port->outbox.count)
            return false;
    }
    return engine->heap_size == 0;
}

/* Have the first thread do everything from here on, unless a helper's frames have not left. */
static void helpers_part(struct engine *engine)
{
    catch_up(engine);
    bool sent = true;
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        struct engine *helper = engine->helpers[i].engine;
        lock_turn(helper);
        sent &= has_sent(helper);
        unlock_turn(helper);
    }
    engine->together = !sent;
}

void helpers_begin_turn(struct engine *engine)
{
    if (!engine->helper_count)
        return;
    bool pays = engine->busy_turns >= BUSY_TURNS && engine->now_ns >= engine->alone_until_ns;
    if (!engine->together && !engine->undivided && (pays || !engine->busy_packets) && has_sent(engine)) {
        engine->together = true;
        engine->together_ns = engine->now_ns;
        engine->quiet_turns = 0;
    }
    engine->dividing = engine->together && !engine->undivided;
}

/* Whether helpers have work, and whether one of them does not get on with it. */
static void look_after(struct engine *engine)
{
    engine->owed = false;
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        struct helper *helper = &engine->helpers[i];
        uint32_t taken = atomic_load_explicit(&helper->ring.taken, memory_order_relaxed);
        if (taken == helper->ring.written)
            helper->seen_ns = engine->now_ns;
        else if (taken != helper->seen_taken || helper->seen_ns + LAG_NS > engine->now_ns)
            engine->owed = true;
        else
            engine->lagged = true;
        if (taken != helper->seen_taken)
            helper->seen_ns = engine->now_ns;
        helper->seen_taken = taken;
    }
}

void helpers_end_turn(struct engine *engine)
{
    if (!engine->helper_count)
        return;
    bool is_busy = engine->received >= engine->busy_packets;
    engine->busy_turns = is_busy ? engine->busy_turns + 1 : 0;
    engine->quiet_turns = is_busy ? 0 : engine->quiet_turns + 1;
    engine->received = 0;
    engine->owed = false;
    if (!engine->dividing)
        return;
    engine->dividing = false;
    hand_over_show_all(engine);
    look_after(engine);
    if (engine->lagged) {
        bool is_soon = engine->now_ns - engine->together_ns < engine->alone_ns;
        engine->alone_ns = is_soon && engine->alone_ns < ALONE_MOST_NS ? 2 * engine->alone_ns : ALONE_LEAST_NS;
        engine->alone_until_ns = engine->now_ns + engine->alone_ns;
    }
    if (engine->lagged || engine->quiet_turns >= QUIET_TURNS)
        helpers_part(engine);
    engine->lagged = engine->lagged && engine->together;        /* if it could not be, the next turn tries again */
    engine->owed = engine->owed && engine->together;
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

void helpers_remove_port(struct engine *engine, uint16_t number)
{
    for (uint32_t i = 0; i < engine->helper_count; i++)
        if (engine->helpers[i].engine->ports[number])
            port_remove(engine->helpers[i].engine->ports[number]);
}

bool helpers_add_port(struct port *port)
{
    struct engine *engine = port->engine;
    bool added = true;
    for (uint32_t i = 0; i < engine->helper_count && added; i++)
        added = add_twin(engine->helpers[i].engine, i + 1, port);
    if (!added)
        helpers_remove_port(engine, port->number);
    else if (engine->helper_count)
        helpers_divide(engine);
    return added;
}

int engine_divide(struct engine *engine, uint32_t threads, uint32_t busy_packets)
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
    engine->busy_packets = busy_packets;
    engine->alone_ns = ALONE_LEAST_NS;
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
    const char *why = engine->helper_count ? why_undivided(engine) : "there is only one";
    engine_unlock(engine);
    return why;
}
