/* Table writes, reads and traffic in threads of their own; built with the thread sanitizer, it must stay silent.
 *
 * usage: engine_threads REPLIES
 *
 * The program (test_engine_sanitized.py) has three tables, each of which sets two fields of a frame to the
 * arguments of one entry. The writer gives both the same value, always a new one, so a frame with two values was
 * served by half a write. It also counts in a register, in a cell that the frame names.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "engine.h"

enum { EXACT, LPM, TERNARY, TABLES };
enum { KEY = 5, OTHERS = 3000, CELL = 4 + TABLES * 16, FRAME = CELL + 4, IN_FLIGHT = 16 };
enum { CELLS = 1024, APART = 64 };

extern const struct p4_program p4_program;
int p4_control_insert(struct p4_pipeline *, uint32_t, const uint64_t *, uint64_t, uint32_t, const uint64_t *);
int p4_control_modify(struct p4_pipeline *, uint32_t, const uint64_t *, uint64_t, uint32_t, const uint64_t *);
int p4_control_delete(struct p4_pipeline *, uint32_t, const uint64_t *, uint64_t);
void p4_control_read_register(struct p4_pipeline *, uint32_t, uint64_t, uint64_t *);

static struct engine *engine;
static struct p4_pipeline *pipeline;
static atomic_bool done;
static uint64_t written;

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "engine_threads: %s\n", what);
        exit(1);
    }
}

static void *serve(void *unused)
{
    char error[ENGINE_ERROR_BYTES];
    must(engine_run(engine, error) == 0, error);
    return unused;
}

/* Value and mask of a key; only an ordered table has a position, here always the first. */
static void insert(uint32_t table, uint64_t key, uint64_t value)
{
    const uint64_t match[2] = {key, UINT32_MAX}, args[4] = {value, 0, value, 0};
    engine_lock(engine);
    must(p4_control_insert(pipeline, table, match, 0, 0, args) == 0, "insert");
    engine_unlock(engine);
}

static void modify(uint32_t table, uint64_t key, uint64_t value)
{
    const uint64_t match[2] = {key, UINT32_MAX}, args[4] = {value, 0, value, 0};
    engine_lock(engine);
    must(p4_control_modify(pipeline, table, match, 0, 0, args) == 0, "modify");
    engine_unlock(engine);
}

static void delete(uint32_t table, uint64_t key)
{
    const uint64_t match[2] = {key, UINT32_MAX};
    engine_lock(engine);
    must(p4_control_delete(pipeline, table, match, 0) == 0, "delete");
    engine_unlock(engine);
}

/* One entry in all its states, and others that make the tables grow and move what is in them. */
static void *write_tables(void *unused)
{
    for (uint64_t round = 0; !atomic_load(&done); round++)
        for (uint32_t table = 0; table < TABLES; table++) {
            uint64_t other = 100 + round % OTHERS;
            if (round / OTHERS % 2 == 0 && table != TERNARY)
                insert(table, other, 0);
            else if (table != TERNARY)
                delete(table, other);
            insert(table, KEY, ++written);
            modify(table, KEY, ++written);
            delete(table, KEY);
        }
    return unused;
}

static void *read_state(void *unused)
{
    while (!atomic_load(&done)) {
        struct engine_statistics statistics;
        engine_port_statistics(engine, 0, &statistics);
        engine_switch_statistics(engine, &statistics);
        (void)engine_next_event(engine);
        usleep(100);
    }
    return unused;
}

static int client_socket(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof here;
    struct timeval patience = {.tv_sec = 20};
    must(fd >= 0 && bind(fd, (struct sockaddr *)&here, size) == 0, "a socket");
    must(getsockname(fd, (struct sockaddr *)&here, &size) == 0, "its port");
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0, "a time limit");
    *port = ntohs(here.sin_port);
    return fd;
}

/* Have the switch answer so many frames, each with two equal values of each table; return how many had some. */
static uint64_t check_replies(int fd, uint64_t replies)
{
    uint8_t frame[FRAME] = {0, 0, 0, KEY}, answer[2 * FRAME];
    uint64_t sent = 0, hits = 0;
    for (uint64_t got = 0; got < replies; got++) {
        for (; sent < got + IN_FLIGHT && sent < replies; sent++) {
            uint32_t cell = htonl((uint32_t)sent * APART % CELLS);
            memcpy(frame + CELL, &cell, sizeof cell);
            must(send(fd, frame, sizeof frame, 0) == sizeof frame, "send");
        }
        must(recv(fd, answer, sizeof answer, 0) == FRAME, "no answer of the right length within 20 s");
        for (uint32_t table = 0; table < TABLES; table++) {
            uint8_t *values = answer + 4 + 16 * table;
            must(memcmp(values, values + 8, 8) == 0, "a packet saw half a write");
            hits += memcmp(values, "\0\0\0\0\0\0\0", 8) != 0;
        }
    }
    return hits;
}

static uint64_t counted(void)
{
    uint64_t sum = 0, words[2];
    for (uint64_t i = 0; i < CELLS; i++) {
        p4_control_read_register(pipeline, 0, i, words);
        sum += words[0];
    }
    return sum;
}

int main(int count, char **arguments)
{
    char error[ENGINE_ERROR_BYTES];
    struct engine_impairments none = {0};
    uint16_t port;
    int fd = client_socket(&port);
    must(count == 2, "usage: engine_threads REPLIES");
    must((engine = engine_create()) != NULL, "an engine");
    must((pipeline = p4_program.create(1)) != NULL, "a pipeline");
    must(engine_add_udp(engine, 0, &none, &none, -1, 0, port, error) == 0, error);
    must(engine_serve_port(engine, 0, error) == 0, error);
    must(engine_load(engine, &p4_program, pipeline) == 0, "engine_load");
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)},
                                .sin_port = htons(engine_udp_port(engine, 0))};
    must(connect(fd, (struct sockaddr *)&there, sizeof there) == 0, "connect");

    pthread_t threads[3];
    void *(*work[])(void *) = {serve, write_tables, read_state};
    engine_prepare(engine);
    for (int i = 0; i < 3; i++)
        must(pthread_create(&threads[i], NULL, work[i], NULL) == 0, "a thread");
    uint64_t replies = strtoull(arguments[1], NULL, 10), hits = check_replies(fd, replies);
    atomic_store(&done, true);
    engine_stop(engine);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    must(counted() == replies, "packets were lost, or counted twice, in the register");
    printf("%llu %llu\n", (unsigned long long)hits, (unsigned long long)written);
    engine_destroy(engine);
    p4_program.destroy(pipeline);
    close(fd);
    return 0;
}
