/* Moves packets between a UDP socket and a core until the collective is done or Python has to decide. */
#include "ina_socket.h"


/* Send all that may be sent now, or as much as the socket takes. */
static void send_all(struct ina_core *core, struct ina_io *io, int64_t now)
{
    while (ina_flush(io, core->packet_bytes)
           && (io->pending = ina_emit(core, io->send_buffer, io->send_packets, now)) > 0)
        ;
}

/* How many packets that are ready may leave. */
static int64_t sendable(const struct ina_core *core)
{
    int64_t room = core->limit - core->in_flight;
    return room < core->ready_count ? room : core->ready_count;
}

static int round_due(const struct ina_core *core)
{
    return core->round_target > 0 && core->round_results >= core->round_target;
}

/* Run until the collective is complete, a time-out is due, `deadline` has passed, a signal has come, the ranks
   disagree, a round has ended, or the socket fails. Returns PUMP_*. */
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
        if (round_due(core))
            return PUMP_ROUND;

        int64_t bytes, segment;
        int received = 0;
        while (sendable(core) < io->send_packets && core->completed < core->total && !round_due(core)
               && (bytes = ina_receive(io, &segment)) > 0) {
            now = ina_now_ns();
            ina_absorb(core, io->receive_buffer, bytes, segment, now);
            received = 1;
        }
        if (received && (now < due || core->completed == core->total))
            continue;
        due = ina_next_timeout(core);
        due = due < deadline ? due : deadline;
        if (now >= due)
            return PUMP_TIMER;
        if (received)
            continue;
        int woken = ina_wait(io, -1, due, now);
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
        int64_t bytes, segment;
        if ((bytes = ina_receive(io, &segment)) > 0) {
            ina_absorb(core, io->receive_buffer, bytes, segment, now);
            continue;
        }
        int woken = ina_wait(io, -1, deadline, now);
        if (woken != 0)
            return woken > 0 ? PUMP_INTERRUPTED : PUMP_ERROR;
    }
}
