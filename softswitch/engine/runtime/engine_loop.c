/* The real-time driver: feeds the core from sockets and a timer. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "engine_internal.h"

#define EVENTS 64
/* Largest delay of the timer for frames that wait for a port's rate. Frames keep their scheduled times, so the rate is
   exact; all that are due within this time leave in one batch, with one system call instead of one per frame. */
#define BATCH_NS 50000

static bool watch(int epoll_fd, int fd, void *data, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = data};
    return epoll_ctl(epoll_fd, operation, fd, &event) == 0;
}

/* Set the timer to the next event, if that changed. */
static void arm(struct engine *engine, int timer_fd)
{
    const struct event *first = engine->heap_size ? &engine->heap[0] : NULL;
    uint64_t slack = first && first->kind == EVENT_DEQUEUE ? BATCH_NS : 0;
    uint64_t next = first ? first->time_ns + slack : ENGINE_NEVER;
    if (next == engine->armed_ns)
        return;
    engine->armed_ns = next;
    struct itimerspec timer = {0};      /* zero disarms */
    if (next != ENGINE_NEVER) {
        uint64_t absolute = engine->start_ns + next;
        timer.it_value.tv_sec = (time_t)(absolute / UINT64_C(1000000000));
        timer.it_value.tv_nsec = (long)(absolute % UINT64_C(1000000000));
    }
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* Watch for blocked ports that can send again. */
static void watch_blocked(struct engine *engine, int epoll_fd)
{
    engine->newly_blocked = false;
    for (int i = 0; i < ENGINE_PORTS; i++)
        if (engine->ports[i] && engine->ports[i]->blocked && !engine->ports[i]->resume_scheduled)
            watch(epoll_fd, engine->ports[i]->fd, engine->ports[i], EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
}

static void serve_port(struct port *port, uint32_t events, int epoll_fd)
{
    if (events & EPOLLOUT) {
        watch(epoll_fd, port->fd, port, EPOLLIN, EPOLL_CTL_MOD);
        if (!port->resume_scheduled)
            port_resume(port);
    }
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        port->receive(port);
}

static void drain_counter(int fd)
{
    uint64_t count;
    (void)!read(fd, &count, sizeof count);
}

static void poll_ports(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->polled_count; i++)
        engine->polled[i]->poll(engine->polled[i]);
}

/* True if all rings are empty; then the writer of the next frame wakes us. */
static bool rest_ports(struct engine *engine)
{
    bool idle = true;
    for (uint32_t i = 0; i < engine->polled_count; i++)
        idle &= engine->polled[i]->rest(engine->polled[i]);
    return idle;
}

static void serve(struct engine *engine, int epoll_fd, int timer_fd)
{
    struct epoll_event events[EVENTS];
    bool idle = true;
    while (!atomic_load_explicit(&engine->stopping, memory_order_relaxed)) {
        int count = epoll_wait(epoll_fd, events, EVENTS, idle ? -1 : 0);
        engine_lock(engine);
        run_events(engine, clock_ns() - engine->start_ns);
        for (int i = 0; i < count; i++) {
            void *source = events[i].data.ptr;
            if (source == &engine->wake_fd) {
                drain_counter(engine->wake_fd);
            } else if (source == &engine->armed_ns) {
                drain_counter(timer_fd);
                engine->armed_ns = ENGINE_NEVER;
            } else {
                serve_port(source, events[i].events, epoll_fd);
            }
        }
        poll_ports(engine);
        flush_ports(engine);
        idle = rest_ports(engine);
        engine->took = false;
        if (unlikely(engine->newly_blocked))
            watch_blocked(engine, epoll_fd);
        arm(engine, timer_fd);
        engine_unlock(engine);
    }
}

static bool watch_port(struct engine *engine, struct port *port)
{
    if (port->fd >= 0 && !watch(engine->epoll_fd, port->fd, port, EPOLLIN, EPOLL_CTL_ADD))
        return false;
    if (port->poll)
        engine->polled[engine->polled_count++] = port;
    return true;
}

int engine_serve_port(struct engine *engine, uint16_t number, char *error)
{
    if (!atomic_load(&engine->running) || watch_port(engine, engine->ports[number]))
        return 0;
    fail(error, "cannot watch port %u: %s", number, strerror(errno));
    port_remove(engine->ports[number]);
    return -1;
}

int engine_run(struct engine *engine, char *error)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    bool ready = epoll_fd >= 0 && timer_fd >= 0
                 && watch(epoll_fd, engine->wake_fd, &engine->wake_fd, EPOLLIN, EPOLL_CTL_ADD)
                 && watch(epoll_fd, timer_fd, &engine->armed_ns, EPOLLIN, EPOLL_CTL_ADD);
    engine_lock(engine);
    engine->epoll_fd = epoll_fd;
    engine->polled_count = 0;
    for (int i = 0; i < ENGINE_PORTS && ready; i++)
        ready = !engine->ports[i] || watch_port(engine, engine->ports[i]);
    if (!ready)
        fail(error, "cannot watch the ports: %s", strerror(errno));
    atomic_store(&engine->running, ready);
    engine_unlock(engine);
    if (ready) {
        engine->armed_ns = ENGINE_NEVER;
        serve(engine, epoll_fd, timer_fd);
        engine_lock(engine);
        atomic_store(&engine->running, false);
        engine_unlock(engine);
    }
    if (epoll_fd >= 0)
        close(epoll_fd);
    if (timer_fd >= 0)
        close(timer_fd);
    return ready ? 0 : -1;
}

void engine_prepare(struct engine *engine)
{
    atomic_store(&engine->stopping, false);
    drain_counter(engine->wake_fd);
}

void engine_stop(struct engine *engine)
{
    uint64_t one = 1;
    atomic_store(&engine->stopping, true);
    (void)!write(engine->wake_fd, &one, sizeof one);
    (void)!write(engine->cpu_fd, &one, sizeof one);
}
