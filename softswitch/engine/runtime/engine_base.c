/* What every part uses: errors, the clock, the lock. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine_internal.h"

int fail(char *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, ENGINE_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return -1;
}

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void *spare_take(struct spares *spares, size_t bytes)
{
    struct spare *first = spares->first;
    if (!first)
        return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    spares->first = first->next;
    __builtin_prefetch(spares->first);      /* it may not have been used for long, and the next call reads it */
    return first;
}

void spare_return(struct spares *spares, void *block)
{
    struct spare *first = block;
    first->next = spares->first;
    spares->first = first;
}

void spares_free(struct spares *spares)
{
    while (spares->first)
        free(spare_take(spares, 0));
}

void frames_free(struct frames *frames)
{
    for (uint32_t size = 0; size < FRAME_SIZES; size++)
        spares_free(&frames->of[size]);
}

#define FRAME_STEP 128          /* bytes between the classes of frames */

struct frame *frame_new(struct engine *engine, const uint8_t *bytes, uint32_t length)
{
    size_t room = sizeof(struct frame) + length, size = room / FRAME_STEP;
    if (size > FRAME_SIZES)
        size = FRAME_SIZES;
    struct frame *frame = size < FRAME_SIZES ? spare_take(&engine->frames->of[size], (size + 1) * FRAME_STEP)
                                             : malloc(room);
    if (frame) {
        *frame = (struct frame){.references = 1, .length = length, .size = (uint8_t)size};
        memcpy(frame->bytes, bytes, length);
    }
    return frame;
}

void frame_release(struct frames *frames, struct frame *frame)
{
    if (!frame || --frame->references)
        return;
    if (frame->size < FRAME_SIZES)
        spare_return(&frames->of[frame->size], frame);
    else
        free(frame);
}

/* A thread that waits for the mutex holds the gate, so the data thread, which keeps unlocking and locking,
   cannot overtake it. */
void engine_lock(struct engine *engine)
{
    if (atomic_load_explicit(&engine->owner, memory_order_relaxed) == (uintptr_t)pthread_self()) {
        engine->owner_depth++;
        return;
    }
    pthread_mutex_lock(&engine->gate);
    pthread_mutex_lock(&engine->mutex);
    pthread_mutex_unlock(&engine->gate);
    atomic_store_explicit(&engine->owner, (uintptr_t)pthread_self(), memory_order_relaxed);
    engine->owner_depth = 1;
}

void engine_unlock(struct engine *engine)
{
    if (--engine->owner_depth)
        return;
    atomic_store_explicit(&engine->owner, 0, memory_order_relaxed);
    pthread_mutex_unlock(&engine->mutex);
}

uint64_t engine_now(struct engine *engine)
{
    return (clock_ns() - engine->start_ns) / 1000;
}
