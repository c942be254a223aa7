/* What the end of a round changes. A congestion control in C decides here, without Python (ina_window.h). */
#include "ina_core.h"
#include "ina_window.h"

/* Apply the new limit of claims to packets that no rank has sent yet, after those of the last change. So all ranks draw the
   same line through the same packets, and a resent packet reports the same waiting as before. */
static void change_line(struct ina_core *core, int64_t claims)
{
    if (core->settled < core->change_at)
        return;
    core->claims = core->claims_next;
    core->waits = core->waits_next;
    core->claims_next = claims;
    if (core->uncollided > 0) {
        core->waits_next = (uint32_t)(INA_ALL_WAIT * core->late / core->uncollided);
        core->late = core->uncollided = 0;
    }
    core->change_at = core->settled + 2 * core->allowed;
}

void ina_end_round(struct ina_core *core, int64_t in_flight, int64_t claims)
{
    core->late += core->round_late;
    core->uncollided += core->round_results - core->round_collided;
    core->round_results = core->round_marked = core->round_collided = core->round_lost = core->round_late = 0;
    change_line(core, claims);
    core->limit = in_flight < core->room ? in_flight : core->room;
    core->round_target = in_flight > core->allowed ? in_flight : core->allowed; /* the next results were sent under the old limits */
    core->allowed = in_flight;
    ina_settle(core);
}

int ina_round_due(const struct ina_core *core)
{
    return core->round_target > 0 && core->round_results >= core->round_target;
}

/* End all rounds that are due by the rule in C. Returns 0 where Python has to: it decides, or the rule's answer, which is
   in `refused_*` then, is none. */
int ina_decide(struct ina_core *core)
{
    while (ina_round_due(core)) {
        if (core->rule == NULL || core->refused)
            return 0;
        struct ina_round round = {core->round_results, core->round_marked, core->round_collided,
                                  (double)core->round_waits / INA_ALL_WAIT};
        struct ina_limits limits = {core->allowed, core->most};
        int status = ((ina_window_rule *)core->rule)(core->rule_state, core->most, &round, &limits);
        int fits = limits.in_flight >= 1 && limits.in_flight <= core->most && limits.claims >= 1
                   && limits.claims <= core->most && (core->fallback || limits.claims == core->most);
        if (status != 0 || !fits) {
            core->refused = 1;
            core->refused_status = status;
            core->refused_in_flight = limits.in_flight;
            core->refused_claims = limits.claims;
            return 0;
        }
        ina_end_round(core, limits.in_flight, limits.claims);
    }
    return 1;
}
