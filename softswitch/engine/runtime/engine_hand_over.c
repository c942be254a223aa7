/* Packets that the first thread receives and another one processes (hand_over.h). */
#include <string.h>
#include <unistd.h>

#include "engine_internal.h"

static void show_to(struct helper *helper)
{
    uint64_t one = 1;
    hand_over_show(&helper->ring);
    atomic_thread_fence(memory_order_seq_cst);          /* against helper_rest: one of both sees what the other did */
    if (atomic_load_explicit(&helper->asleep, memory_order_relaxed)
        && atomic_exchange_explicit(&helper->asleep, false, memory_order_relaxed))
        (void)!write(helper->engine->wake_fd, &one, sizeof one);
}

void catch_up(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->helper_count; i++) {
        hand_over_show(&engine->helpers[i].ring);
        lock_turn(engine->helpers[i].engine);
    }
    engine->settle(engine);
    for (uint32_t i = engine->helper_count; i-- > 0;)
        unlock_turn(engine->helpers[i].engine);
}

/* A place in a ring that was full, by its helper or, if that does not come to it, by ourselves. */
static uint32_t wait_for_place(struct engine *engine, struct helper *helper)
{
    uint64_t since_ns = clock_ns();
    uint32_t place;
    show_to(helper);
    while (!hand_over_place(&helper->ring, &place)) {
        if (clock_ns() - since_ns < LAG_NS)
            continue;
        engine->lagged = true;
        catch_up(engine);
    }
    return place;
}

bool hand_over_packet(struct port *port, const uint8_t *frame, uint32_t length)
{
    struct engine *engine = port->engine;
    const struct p4_program *program = engine->program;
    struct p4_arrival arrival = {frame, length, port->number};
    uint64_t slot = P4_NO_SLOT;
    if (program->slots)
        program->slots(engine->pipeline, &arrival, 1, &slot);
    uint32_t thread = hand_over_to(&engine->map, slot, &arrival);
    if (thread == 0)
        return false;
    struct helper *helper = &engine->helpers[thread - 1];
    uint32_t place;
    if (unlikely(!hand_over_place(&helper->ring, &place)))
        place = wait_for_place(engine, helper);
    struct handed_over *packet = &helper->packets[place];
    packet->length = length;
    packet->port = port->number;
    memcpy(packet->frame, frame, length);
    engine->statistics.handed_over++;
    return true;
}

void hand_over_show_all(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->helper_count; i++)
        show_to(&engine->helpers[i]);
}
