/* When packets are overdue, and then resend them, or ask for a status: `Window.on_timeout` describes which, and why.
 * tests/twins/kernel.py has the same in NumPy. */
#include "ina_core.h"

enum { FIRST_PROBES = 8, MOST_PROBES = 2, MOST_DOUBLINGS = 20 };

/* How often the time-out has doubled. */
static int64_t doublings_of(const struct ina_core *core)
{
    return core->backoff < MOST_DOUBLINGS ? core->backoff : MOST_DOUBLINGS;
}

/* When a probe is due, if the oldest packet in flight was sent then: a bit after its round trip, that of the probe before
   and the last result. */
static int64_t next_probe(const struct ina_core *core, int64_t oldest)
{
    if (core->probe_margin == INA_NEVER || core->srtt == 0 || core->backoff > 0 || core->probes >= MOST_PROBES)
        return INA_NEVER;
    /* where results come in a slow but steady stream nothing is lost, and what probes bring would slow it more */
    int64_t quiet = core->srtt / 4 > core->probe_margin ? core->srtt / 4 : core->probe_margin;
    int64_t late = (oldest > core->probed_at ? oldest : core->probed_at) + core->srtt + (core->probe_margin << core->probes);
    int64_t silent = core->progress_at + (quiet << core->probes);
    return late > silent ? late : silent;
}

/* When the oldest packet in flight was sent; INA_NEVER: none is. */
static int64_t oldest_sent(const struct ina_core *core)
{
    int64_t oldest = INA_NEVER;
    int64_t count = core->frontier - core->oldest;
    count = count < core->window ? count : core->window;
    uint32_t chain = ina_chain_of(core, core->frontier - count);
    for (; count > 0; count--, chain = chain + 1 == core->window ? 0 : chain + 1) {
        int waits = (core->status[chain] & (CHAIN_FLIGHT | CHAIN_QUEUED)) == CHAIN_FLIGHT;
        int64_t sent_at = waits ? core->sent_at[chain] : INA_NEVER;
        oldest = sent_at < oldest ? sent_at : oldest;
    }
    return oldest;
}

/* Time when a packet sent at `oldest` is overdue: `rto` after its earliest possible answer. */
static int64_t overdue_after(const struct ina_core *core, int64_t oldest, int64_t *rto)
{
    *rto = core->rto << doublings_of(core);
    *rto = *rto < core->rto_max ? *rto : core->rto_max;
    int64_t from = oldest > core->timeout_at ? oldest : core->timeout_at;
    if (!core->fallback && core->progress_at > from) /* results that arrive steadily, if slowly, are not lost (RFC 6298, 5.3) */
        from = core->progress_at;
    return from + *rto;
}

int64_t ina_next_timeout(const struct ina_core *core)
{
    int64_t rto, oldest = oldest_sent(core);
    if (oldest == INA_NEVER)
        return INA_NEVER;
    int64_t timeout = overdue_after(core, oldest, &rto), probe = next_probe(core, oldest);
    return probe < timeout ? probe : timeout;
}

/* How far behind the oldest packet without a result the next one is, from `at` on, that was sent at `until` or before and waits:
   either of those that a status showed to be counted, or of the others. The window: there is none. */
static uint32_t next_overdue(const struct ina_core *core, uint32_t at, int64_t until, int counted)
{
    uint16_t looked_at = CHAIN_FLIGHT | CHAIN_QUEUED | CHAIN_COUNTED;
    uint16_t wanted = (uint16_t)(CHAIN_FLIGHT | (counted ? CHAIN_COUNTED : 0));
    for (; at < core->window; at++) {
        uint32_t chain = ina_chain_of(core, core->oldest + at);
        if ((core->status[chain] & looked_at) == wanted && core->sent_at[chain] <= until)
            break;
    }
    return at;
}

/* Ask for the first of what was sent at `until` or before, `most` at most: those that may flush a sum are sent again instead. */
static void send_again(struct ina_core *core, int64_t until, int counted, int64_t most)
{
    for (uint32_t at = 0; most > 0 && (at = next_overdue(core, at, until, counted)) < core->window; most--) {
        uint32_t chain = ina_chain_of(core, core->oldest + at);
        uint32_t flags = core->fallback && core->status[chain] & CHAIN_ASKED ? 0 : CHAIN_QUERY;
        /* no status arrived for the last query: that is no slow rank, so report it to all ranks */
        if ((core->status[chain] & (CHAIN_ASKED | CHAIN_COUNTED)) == CHAIN_ASKED)
            flags |= CHAIN_LOST;
        ina_queue_resend(core, chain, flags);
    }
}

/* Ask for a few that had a round trip without being answered; those first that may not be counted. A probe only asks: it
   does not flush a sum, and it is no sign of congestion. */
static void probe(struct ina_core *core, int64_t now)
{
    int64_t left = core->completed ? FIRST_PROBES : 1;
    for (int counted = 0; counted <= 1; counted++) {
        uint32_t at = 0;
        for (; left > 0 && (at = next_overdue(core, at, now - core->srtt, counted)) < core->window; left--)
            ina_queue_resend(core, ina_chain_of(core, core->oldest + at), CHAIN_QUERY | CHAIN_PROBE);
    }
    core->probes++;
    core->probed_at = now;
}

void ina_time_out(struct ina_core *core, int64_t now)
{
    if (now < ina_next_timeout(core))
        return;
    while (core->index[ina_chain_of(core, core->oldest)] > core->oldest)
        core->oldest++;                 /* without a fallback server it may lag */
    int64_t rto;
    if (now < overdue_after(core, oldest_sent(core), &rto)) {
        probe(core, now);
        return;
    }
    int64_t doublings = doublings_of(core);
    int64_t probes = (int64_t)FIRST_PROBES << 2 * doublings, reminders = (int64_t)1 << doublings;
    int64_t most = core->most / 8 > FIRST_PROBES ? core->most / 8 : FIRST_PROBES;
    reminders = reminders < most ? reminders : most;
    if (core->fallback && core->most / 32 > probes)
        probes = core->most / 32;
    int64_t until = now - (rto - rto / 4);      /* packets that are almost overdue, too: they would wait for the next time-out */
    send_again(core, until, 1, reminders);
    send_again(core, until, 0, probes);
    core->backoff++;
    core->timeout_at = now;
}
