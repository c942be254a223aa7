/* Moves packets between the socket and the core of a fallback server. */
#include "ina_fallback.h"
#include "ina_socket.h"

enum { BATCHES = 16 };                  /* received before what they caused is sent */

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
