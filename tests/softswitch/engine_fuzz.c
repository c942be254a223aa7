/* Drives the engine with random bytes; built with sanitizers, it must stay silent.
 *
 * usage: engine_fuzz SEED ROUNDS
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine.h"
#include "engine_offload.h"

extern const struct p4_program p4_program;

static uint64_t state;

static uint32_t chance(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}

static void fill(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)chance(256);
}

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "engine_fuzz: %s\n", what);
        exit(1);
    }
}

/* Any bytes, or an order for the script program. */
static uint32_t any_frame(uint8_t *frame)
{
    uint32_t length = chance(8) ? chance(300) : chance(P4_MAX_FRAME + 100);
    fill(frame, length);
    if (length >= 32 && chance(4)) {
        static const char orders[] = "MDRUXZ";
        frame[0] = (uint8_t)orders[chance(6)];
        frame[1] = (uint8_t)chance(chance(8) ? 4 : 256);
        frame[2] = (uint8_t)(chance(50) == 0);
        frame[3] = (uint8_t)chance(7);
        frame[4] = 0;
        frame[5] = (uint8_t)chance(4);
        frame[6] = chance(2) ? 'i' : 'e';
    }
    return length;
}

static uint64_t probability(void)
{
    static const uint64_t some[] = {0, 0, 0, UINT64_MAX / 10, UINT64_MAX / 2, UINT64_MAX};
    return some[chance(6)];
}

static struct engine_impairments any_impairments(void)
{
    struct engine_impairments none = {0};
    if (chance(3) == 0)
        return none;
    return (struct engine_impairments){
        .loss = probability() / 4, .duplicate = probability(), .reorder = probability(),
        .corrupt = probability() / 4,
        .delay_ns = chance(2) * chance(100000), .jitter_ns = chance(2) * chance(50000),
        .reorder_ns = chance(2) * chance(100000), .rate_bps = chance(2) * (1 + (uint64_t)chance(1000000000)),
        .burst_bytes = chance(3000), .seed = chance(1000), .queue_packets = chance(10)};
}

static void fuzz_traffic_manager(uint32_t steps)
{
    char error[ENGINE_ERROR_BYTES];
    struct engine *engine = engine_create();
    must(engine != NULL, "engine_create");
    for (uint16_t port = 0; port < 5; port++) {
        struct engine_impairments rx = any_impairments(), tx = any_impairments();
        must(engine_add_memory(engine, port, &rx, &tx, port == 4, error) == 0, error);
        must(engine_add_memory(engine, port, &rx, &tx, 0, error) == -1, "the same port twice");
    }
    struct p4_pipeline *pipeline = p4_program.create(1);
    must(engine_load(engine, &p4_program, pipeline) == 0, "engine_load");
    uint64_t now = 0, next;
    uint8_t *frames = malloc(8 * (P4_MAX_FRAME + 100));
    for (uint32_t step = 0; step < steps; step++) {
        now += chance(300);
        struct engine_member members[6];
        uint32_t count = chance(7), truncate = chance(2) * chance(100);
        for (uint32_t i = 0; i < count; i++)
            members[i] = (struct engine_member){(uint16_t)chance(chance(9) ? 6 : 65536),
                                                (uint16_t)chance(65536), (uint16_t)chance(3)};
        switch (chance(40)) {
        case 0:
            engine_set_group(engine, (uint16_t)chance(7), chance(4) ? members : NULL, count);
            break;
        case 4:
            engine_set_exclusion(engine, (uint16_t)chance(4), chance(4) ? members : NULL, count);
            break;
        case 1:
            engine_set_session(engine, (uint16_t)chance(4), chance(4) ? members : NULL, count, truncate);
            break;
        case 2:
            must(engine_load(engine, chance(3) ? &p4_program : NULL, pipeline) == 0, "engine_load");
            break;
        case 3:
            next = engine_next_event(engine);
            engine_advance(engine, next == ENGINE_NEVER ? now : next);
            break;
        default:
            break;
        }
        uint32_t lengths[8], batch = chance(9);
        uint8_t *at = frames;
        for (uint32_t i = 0; i < batch; i++)
            at += lengths[i] = any_frame(at);
        engine_inject(engine, (uint16_t)chance(chance(20) ? 5 : 65536), frames, lengths, batch, now);
        uint16_t port = (uint16_t)chance(5);
        uint64_t bytes;
        uint32_t pending = engine_pending(engine, port, &bytes);
        uint8_t *out = malloc(bytes + 1);
        uint32_t *out_lengths = malloc((pending + 1) * sizeof *out_lengths);
        uint64_t *times = malloc((pending + 1) * sizeof *times);
        engine_drain(engine, port, out, out_lengths, times, chance(2) ? pending : pending / 2, bytes);
        free(out);
        free(out_lengths);
        free(times);
    }
    free(frames);
    engine_destroy(engine);
    p4_program.destroy(pipeline);
}

static uint32_t split_bytes;

static void take(void *context, const uint8_t *frame, uint32_t length)
{
    (void)context;
    for (uint32_t i = 0; i < length; i++)
        split_bytes += frame[i];
}

/* Offload headers that a hostile or broken device could hand over, in buffers of exact size. */
static void fuzz_offload(void)
{
    static const uint8_t types[] = {0, 1, 3, 4, 5, 0x81, 0x85, 77};
    uint32_t length = chance(3) ? chance(200) : chance(3000);
    uint8_t *frame = malloc(length ? length : 1);
    fill(frame, length);
    if (length > 60 && chance(5)) {
        static const uint8_t ip4[] = {0x08, 0x00, 0x45}, ip6[] = {0x86, 0xdd, 0x60};
        memcpy(frame + 12, chance(2) ? ip4 : ip6, 3);
        if (chance(5) == 0)
            memcpy(frame + 12, "\x81\x00\x01\x02\x08\x00\x46", 7);
        frame[46] = (uint8_t)(chance(16) << 4);
    }
    struct offload offload = {.flags = (uint8_t)chance(4), .type = types[chance(8)],
                              .header_bytes = (uint16_t)chance(100),
                              .segment_bytes = (uint16_t)chance(chance(2) ? 40 : 2000),
                              .checksum_start = (uint16_t)chance(chance(2) ? 60 : 65536),
                              .checksum_offset = (uint16_t)chance(chance(2) ? 20 : 65536)};
    offload_split(&offload, frame, length, take, NULL);
    free(frame);
}

/* Runs of frames that nearly belong together. */
static void fuzz_join(void)
{
    uint32_t lengths[80], count = 1 + chance(80), size = 43 + chance(1200), total = 0;
    uint8_t model[2000], headers[OFFLOAD_UDP_HEADERS];
    fill(model, sizeof model);
    memcpy(model + 12, "\x08\x00\x45", 3);
    memset(model + 20, 0, 2);
    model[23] = 17;
    memset(model + 40, 0, 2);
    for (uint32_t i = 0; i < count; i++)
        total += lengths[i] = chance(20) ? size : chance(size + 20);
    uint8_t *bytes = malloc(total ? total : 1), *at = bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = lengths[i];
        model[16] = (uint8_t)((length - 14) >> 8), model[17] = (uint8_t)(length - 14);
        model[38] = (uint8_t)((length - 34) >> 8), model[39] = (uint8_t)(length - 34);
        model[24] = model[25] = 0;
        uint32_t sum = 0;
        for (int k = 14; k < 34; k += 2)
            sum += (uint32_t)(model[k] << 8 | model[k + 1]);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
        model[24] = (uint8_t)(sum >> 8), model[25] = (uint8_t)sum;
        memcpy(at, model, length);
        at += length;
    }
    uint32_t run = offload_run(bytes, lengths, count);
    must(run >= 1 && run <= count && run <= OFFLOAD_MAX_RUN, "offload_run");
    if (run > 1) {
        struct offload offload;
        offload_join(bytes, lengths, run, &offload, headers);
    }
    free(bytes);
}

static void *serve(void *engine)
{
    char error[ENGINE_ERROR_BYTES];
    must(engine_run(engine, error) == 0, error);
    return NULL;
}

/* Datagrams of any content, from peers and strangers, at real sockets, while another thread changes groups. */
static void fuzz_sockets(uint32_t datagrams)
{
    char error[ENGINE_ERROR_BYTES];
    struct engine *engine = engine_create();
    struct engine_impairments none = {0};
    struct p4_pipeline *pipeline = p4_program.create(1);
    int sockets[6];     /* two to each port: the second to speak is a stranger */
    for (uint16_t port = 0; port < 3; port++) {
        must(engine_add_udp(engine, port, &none, &none, -1, 0, 0, error) == 0, error);
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons(engine_udp_port(engine, port))};
        for (int i = port; i < 6; i += 3) {
            sockets[i] = socket(AF_INET, SOCK_DGRAM, 0);
            must(connect(sockets[i], (struct sockaddr *)&to, sizeof to) == 0, "connect");
        }
    }
    must(engine_load(engine, &p4_program, pipeline) == 0, "engine_load");
    pthread_t thread;
    engine_prepare(engine);
    must(pthread_create(&thread, NULL, serve, engine) == 0, "pthread_create");
    static uint8_t frame[P4_MAX_FRAME + 100];
    for (uint32_t i = 0; i < datagrams; i++) {
        struct engine_member members[] = {{0, 1, 0}, {1, 2, 1}, {2, 3, 2}};
        uint32_t length = any_frame(frame);
        (void)!send(sockets[chance(6)], frame, length, 0);
        engine_set_group(engine, (uint16_t)chance(7), members, chance(4));
    }
    engine_stop(engine);
    pthread_join(thread, NULL);
    for (int i = 0; i < 6; i++)
        close(sockets[i]);
    engine_destroy(engine);
    p4_program.destroy(pipeline);
}

int main(int count, char **arguments)
{
    must(count == 3, "usage: engine_fuzz SEED ROUNDS");
    state = strtoull(arguments[1], NULL, 10);
    uint32_t rounds = (uint32_t)strtoul(arguments[2], NULL, 10);
    for (uint32_t round = 0; round < rounds; round++) {
        fuzz_traffic_manager(300);
        for (int i = 0; i < 500; i++)
            fuzz_offload();
        for (int i = 0; i < 50; i++)
            fuzz_join();
        fuzz_sockets(300);
    }
    return 0;
}
