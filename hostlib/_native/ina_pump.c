/* Moves packets between a core and a UDP socket, or shared memory, until the collective is done or Python must decide. */
#include "ina_fallback.h"

/* Send all that may be sent now, or as much as the socket takes. */
static void send_all(struct ina_core *core, struct ina_io *io, int64_t now)
{
    if (io->area) {
        ina_ring_send(core, io, now);
        return;
    }
    while (ina_flush(io, core->emitted_bytes)
           && (io->pending = ina_emit(core, io->send_buffer, io->send_packets, 0, now)) > 0)
        ;
}

/* Process some arrived packets. Returns whether there were any. */
static int take_some(struct ina_core *core, struct ina_io *io)
{
    if (io->area)
        return ina_ring_take(core, io) > 0;
    int64_t segment, bytes = ina_receive(io, &segment);
    if (bytes > 0)
        ina_absorb(core, io->receive_buffer, bytes, segment, ina_now_ns());
    return bytes > 0;
}

static int wait(struct ina_io *io, int64_t until, int64_t now)
{
    return io->area ? ina_ring_wait(io, -1, until, now) : ina_wait(io, -1, until, now);
}

/* How many packets that are ready may leave. */
static int64_t sendable(const struct ina_core *core)
{
    int64_t room = core->limit - core->in_flight;
    return room < core->ready_count ? room : core->ready_count;
}

/* Run until the collective is complete, a time-out is due, `deadline` has passed, a signal has come, the ranks
   disagree, Python must end a round, or the socket fails. Returns PUMP_*. */
int ina_pump(struct ina_core *core, struct ina_io *io, int64_t deadline)
{
    int64_t due = 0;                    /* no time-out is due before this; 0: not known */
    for (;;) {
        int64_t now = ina_now_ns();
        send_all(core, io, now);
        if (core->disagree_index >= 0)
            return PUMP_DISAGREE;
        if (core->completed == core->total) {
            io->pending = io->pending_from = 0;
            return PUMP_DONE;
        }
        if (!ina_decide(core))
            return PUMP_ROUND;

        int received = 0;
        while ((io->full || sendable(core) < io->send_packets) && core->completed < core->total && !ina_round_due(core)
               && take_some(core, io))
            received = 1;
        now = ina_now_ns();
        if (received && (now < due || core->completed == core->total))
            continue;
        due = ina_next_timeout(core);
        due = due < deadline ? due : deadline;
        if (now >= due)
            return PUMP_TIMER;
        if (received)
            continue;
        int woken = wait(io, due, now);
        if (woken != 0)
            return woken > 0 ? PUMP_INTERRUPTED : PUMP_ERROR;
    }
}

/* Answer the reminders of other ranks' packets until `deadline` has passed or a signal has come: for the time in which
   this rank has nothing to sum. Returns PUMP_TIMER, PUMP_INTERRUPTED or PUMP_ERROR. */
int ina_serve(struct ina_core *core, struct ina_io *io, int64_t deadline)
{
    for (;;) {
        int64_t now = ina_now_ns();
        send_all(core, io, now);
        if (now >= deadline)
            return PUMP_TIMER;
        if (take_some(core, io))
            continue;
        int woken = wait(io, deadline, now);
        if (woken != 0)
            return woken > 0 ? PUMP_INTERRUPTED : PUMP_ERROR;
    }
}

/* ---- The same for a fallback server ---- */

enum { BATCHES = 16 };                  /* packets received before their replies are sent */

/* Serve until `deadline` has passed (returns PUMP_TIMER), a signal has come or `control` is readable
   (PUMP_INTERRUPTED), or the socket fails (PUMP_ERROR). */
int ina_fallback_pump(struct ina_fallback *core, struct ina_io *io, int64_t send_bytes, int control, int64_t deadline)
{
    for (;;) {
        int64_t now = ina_now_ns();
        while (ina_flush(io, (uint32_t)core->pending_bytes)
               && (io->pending = ina_fallback_emit(core, io->send_buffer, send_bytes, now, &core->pending_bytes)) > 0)
            ;
        int64_t bytes, segment;
        int received = 0;
        while (received < BATCHES && (bytes = ina_receive(io, &segment)) > 0) {
            ina_fallback_absorb(core, io->receive_buffer, bytes, segment, ina_now_ns());
            received++;
        }
        if (now >= deadline)
            return PUMP_TIMER;
        if (received)
            continue;
        int64_t due = ina_fallback_next_timeout(core);
        if (now >= due && io->pending == 0)
            continue;
        due = due < deadline && io->pending == 0 ? due : deadline;
        int woken = ina_wait(io, control, due, now);
        if (woken != 0)
            return woken > 0 ? PUMP_INTERRUPTED : PUMP_ERROR;
    }
}
