/* Captures: the frames at the ports, as blocks of a pcapng file (draft-ietf-opsawg-pcapng), one stream for each port.
 *
 * A received frame is recorded after the program has processed it, so that its comment has the requested metadata; a
 * leaving frame, when its transmission begins. A frame that gets neither so far is recorded where it ends. Each
 * comment is words `name=value`:
 *
 *   fate=...                    lost, corrupted, duplicated (by the link), queue_full, blocked, no_program
 *   waited_us=... depth=...     time in the port's queue, and the packets left in it
 *   NAME=...                    the program's metadata
 *
 * No two records of a switch have the same time: sorted by time, they are in the order of the events.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

#define PACKET_BLOCK 6
#define OPTION_COMMENT 1
#define OPTION_FLAGS 2
#define INBOUND 1
#define OUTBOUND 2
#define COMMENT_BYTES 256
#define RECORD_BYTES (64 + COMMENT_BYTES)       /* around the frame */

struct capture {
    struct engine_capture_config config;
    const struct p4_field *fields[ENGINE_CAPTURE_NOTES];
    uint64_t last_ns;
    uint32_t waited_us, depth;
};

struct captured {
    uint8_t *bytes;
    size_t used, capacity;
    uint64_t dropped;
};

/* ---------------------------------------------------------------- the program's metadata */

static const struct p4_field *find_field(const struct p4_program *program, const char *name)
{
    for (const struct p4_field *field = program ? program->metadata : NULL; field && field->name; field++)
        if (strcmp(field->name, name) == 0)
            return field;
    return NULL;
}

void capture_program(struct engine *engine)
{
    struct capture *capture = engine->capture;
    for (int i = 0; capture && i < ENGINE_CAPTURE_NOTES; i++)
        capture->fields[i] = find_field(engine->program, capture->config.notes[i]);
}

static int describe_packet(const struct capture *capture, const struct p4_packet *packet, char *text, int room)
{
    int used = 0;
    for (int i = 0; i < ENGINE_CAPTURE_NOTES; i++) {
        const struct p4_field *field = capture->fields[i];
        if (!field)
            continue;
        uint64_t value = 0;     /* little endian, as on all machines that this engine supports */
        memcpy(&value, (const uint8_t *)packet + field->offset, field->bytes);
        used += snprintf(text + used, (size_t)(room - used), "%s%s=%" PRIu64, used ? " " : "", field->name, value);
        if (used >= room)
            return room - 1;
    }
    return used;
}

/* ---------------------------------------------------------------- records */

static uint8_t *put32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static uint8_t *put_padded(uint8_t *to, const void *bytes, uint32_t length)
{
    memcpy(to, bytes, length);
    memset(to + length, 0, -length & 3);
    return to + length + (-length & 3);
}

static uint8_t *put_option(uint8_t *to, uint16_t code, const void *bytes, uint16_t length)
{
    return put_padded(put32(to, code | (uint32_t)length << 16), bytes, length);
}

static uint8_t *make_room(struct captured *captured, size_t size, size_t most)
{
    if (captured->used + size > most)
        return NULL;
    if (captured->used + size > captured->capacity) {
        size_t capacity = 2 * captured->capacity + size + 65536;
        uint8_t *bytes = realloc(captured->bytes, capacity);
        if (!bytes)
            return NULL;
        captured->bytes = bytes;
        captured->capacity = capacity;
    }
    return captured->bytes + captured->used;
}

static void record(struct port *port, uint32_t direction, const uint8_t *frame, uint32_t length,
                   const char *comment, int comment_length)
{
    struct capture *capture = port->engine->capture;
    if (!port->captured && !(port->captured = calloc(1, sizeof *port->captured)))
        return;
    struct captured *captured = port->captured;
    uint32_t kept = length < capture->config.snap ? length : capture->config.snap;
    uint64_t time_ns = capture->config.epoch_ns + port->engine->now_ns;
    time_ns = capture->last_ns = time_ns > capture->last_ns ? time_ns : capture->last_ns + 1;
    uint8_t *start = make_room(captured, RECORD_BYTES + kept, capture->config.capacity);
    if (!start) {
        captured->dropped++;
        return;
    }
    uint8_t *to = put32(start, PACKET_BLOCK);
    to = put32(to + 4, 0);      /* its length is written at the end; interface 0 */
    to = put32(to, (uint32_t)(time_ns >> 32));
    to = put32(to, (uint32_t)time_ns);
    to = put32(to, kept);
    to = put32(to, length);
    to = put_padded(to, frame, kept);
    if (comment_length > 0)
        to = put_option(to, OPTION_COMMENT, comment, (uint16_t)comment_length);
    to = put_option(to, OPTION_FLAGS, &direction, sizeof direction);
    to = put32(to, 0);
    uint32_t total = (uint32_t)(to - start) + 4;
    to = put32(to, total);
    put32(start + 4, total);
    captured->used += total;
}

static void record_fate(struct port *port, uint32_t direction, const uint8_t *frame, uint32_t length, const char *fate)
{
    char comment[COMMENT_BYTES];
    record(port, direction, frame, length, comment, snprintf(comment, sizeof comment, "fate=%s", fate));
}

void capture_received(struct port *port, const struct p4_packet *packet, const uint8_t *frame, uint32_t length)
{
    char comment[COMMENT_BYTES];
    record(port, INBOUND, frame, length, comment,
           describe_packet(port->engine->capture, packet, comment, sizeof comment));
}

void capture_refused(struct port *port, const uint8_t *frame, uint32_t length, const char *fate)
{
    record_fate(port, INBOUND, frame, length, fate);
}

void capture_unsent(struct port *port, const uint8_t *frame, uint32_t length, const char *fate)
{
    record_fate(port, OUTBOUND, frame, length, fate);
}

void capture_waited(struct engine *engine, uint32_t waited_us, uint32_t depth)
{
    engine->capture->waited_us = waited_us;
    engine->capture->depth = depth;
}

void capture_sent(struct port *port, const uint8_t *frame, uint32_t length, const char *fate)
{
    const struct capture *capture = port->engine->capture;
    char comment[COMMENT_BYTES];
    int used = 0;
    if (capture->waited_us || capture->depth)
        used = snprintf(comment, sizeof comment, "waited_us=%" PRIu32 " depth=%" PRIu32, capture->waited_us,
                        capture->depth);
    if (fate)
        used += snprintf(comment + used, sizeof comment - (size_t)used, "%sfate=%s", used ? " " : "", fate);
    record(port, OUTBOUND, frame, length, comment, used);
}

/* ---------------------------------------------------------------- life */

void capture_forget(struct port *port)
{
    if (port->captured)
        free(port->captured->bytes);
    free(port->captured);
    port->captured = NULL;
}

int engine_capture(struct engine *engine, const struct engine_capture_config *config)
{
    struct capture *capture = NULL;
    if (config) {
        capture = calloc(1, sizeof *capture);
        if (!capture)
            return -1;
        capture->config = *config;
    }
    engine_lock(engine);
    free(engine->capture);
    engine->capture = capture;
    capture_program(engine);
    engine_unlock(engine);
    return 0;
}

uint64_t engine_captured(struct engine *engine, uint16_t number, uint8_t *bytes, uint64_t room, uint64_t *dropped)
{
    engine_lock(engine);
    struct port *port = number < ENGINE_PORTS ? engine->ports[number] : NULL;
    struct captured *captured = port ? port->captured : NULL;
    uint64_t used = captured ? captured->used : 0;
    *dropped = captured ? captured->dropped : 0;
    if (used && used <= room) {
        memcpy(bytes, captured->bytes, used);
        captured->used = 0;
    }
    engine_unlock(engine);
    return used;
}
