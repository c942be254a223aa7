/* Shared memory ports: frames in rings that this process and the one at the far end both map (shared_ring.h).
 *
 * Egress writes a frame where the far end reads it. A received frame is copied out of the ring first, as the far end
 * could change it while the program reads it. Each word from the far end is checked before its use as an index; an
 * impossible one ends the connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine_internal.h"
#include "shared_ring.h"

#define SHARED_TURN 64              /* most frames taken from one port before the next port's turn */
#define SHARED_PUBLISH 32           /* most frames written before the far end may see them */
/* A sleeping peer is woken for a quarter of its ring, when no more frames come in, or after this number of turns: with
   more processes than processors each wake-up is a context switch, too costly for a few frames. */
#define SHARED_HELD_TURNS 4

_Static_assert(P4_MAX_FRAME <= RING_MAX_FRAME, "a frame must fit behind the last slot");

struct shared_port {
    int listen_fd, peer_fd;         /* -1: not connected */
    struct ring_area *area;         /* NULL before the peer's request */
    size_t area_bytes;
    uint8_t *in, *out;              /* slots */
    uint32_t slots, slot_bytes;
    uint32_t wide;                  /* slots that the longest frame covers */
    uint32_t taken;                 /* frames received */
    uint32_t written, published;    /* frames written, and of these published to the peer */
    uint32_t free_until;            /* known limit of `written` */
    bool asleep;                    /* `asleep` is set for us */
    bool owes;                      /* the peer waits, and has not been woken for all published frames */
    uint32_t owed_turns;
    bool broken;                    /* the peer has written an impossible value */
    _Alignas(64) uint8_t padding[RING_FRAME_AT];
    uint8_t frame[P4_MAX_FRAME];    /* the frame being received, aligned as in its slot */
};

/* ---------------------------------------------------------------- connection */

static void forget_peer(struct shared_port *shared)
{
    if (shared->area)
        munmap(shared->area, shared->area_bytes);
    if (shared->peer_fd >= 0)
        close(shared->peer_fd);
    shared->area = NULL;
    shared->peer_fd = -1;
    shared->asleep = shared->broken = shared->owes = false;
}

static void wake_peer(struct shared_port *shared)
{
    uint8_t byte = 0;
    if (ring_take_turn_to_wake(&shared->area->peer_asleep))     /* a full socket is readable already */
        (void)!send(shared->peer_fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool is_possible(const struct ring_request *request, ssize_t length)
{
    return length == (ssize_t)sizeof *request && request->magic == RING_MAGIC && request->version == RING_VERSION
           && request->slots >= RING_LEAST_SLOTS && request->slots <= RING_MOST_SLOTS
           && (request->slots & (request->slots - 1)) == 0
           && request->frame_bytes > 0 && request->frame_bytes <= P4_MAX_FRAME;
}

/* Memory that cannot be truncated: an access beyond a cut would end this process. */
static int make_memory(size_t bytes)
{
    int fd = memfd_create("ina-port", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool send_offer(int peer_fd, const struct ring_offer *offer, int memory_fd)
{
    struct iovec part = {(void *)offer, sizeof *offer};
    union {
        struct cmsghdr header;          /* for its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof memory_fd);
    memcpy(CMSG_DATA(header), &memory_fd, sizeof memory_fd);
    return sendmsg(peer_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *offer;
}

/* Map rings as the peer requests them, and pass them to it. */
static bool open_rings(struct shared_port *shared, const struct ring_request *request)
{
    uint32_t slots = request->slots, slot_bytes = ring_slot_bytes(request->frame_bytes);
    struct ring_offer offer = {RING_MAGIC, RING_VERSION, slots, slot_bytes, ring_area_bytes(slots, slot_bytes)};
    int fd = make_memory(offer.area_bytes);
    void *area = fd < 0 ? MAP_FAILED : mmap(NULL, offer.area_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area != MAP_FAILED) {
        shared->area = area;
        shared->area_bytes = offer.area_bytes;
        shared->in = ring_in_slots(area);
        shared->out = ring_out_slots(area, slots, slot_bytes);
        shared->slots = slots;
        shared->slot_bytes = slot_bytes;
        shared->wide = (RING_FRAME_AT + P4_MAX_FRAME + slot_bytes - 1) / slot_bytes;
        shared->taken = shared->written = shared->published = 0;
        shared->free_until = slots;
    }
    bool sent = shared->area && send_offer(shared->peer_fd, &offer, fd);
    if (fd >= 0)
        close(fd);
    return sent;
}

/* Read the peer's socket: first its request, then bytes that wake us, at last the end. */
static void hear_peer(struct shared_port *shared)
{
    struct ring_request request;
    ssize_t length = recv(shared->peer_fd, &request, sizeof request, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length <= 0 || (!shared->area && !(is_possible(&request, length) && open_rings(shared, &request))))
        forget_peer(shared);
}

/* The last process to connect is the peer: the one before has ended, and its children may keep its socket open. */
static void take_peer(struct port *port)
{
    struct shared_port *shared = port->io;
    int fd = accept4(shared->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    forget_peer(shared);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(port->fd, EPOLL_CTL_ADD, fd, &event)) {
        close(fd);
        return;
    }
    shared->peer_fd = fd;
}

/* port->fd is an epoll of both sockets. */
static void shared_receive(struct port *port)
{
    struct shared_port *shared = port->io;
    struct epoll_event events[2];
    int count = epoll_wait(port->fd, events, 2, 0);
    for (int i = 0; i < count; i++)
        if (events[i].data.fd == shared->peer_fd)
            hear_peer(shared);
    for (int i = 0; i < count; i++)
        if (events[i].data.fd == shared->listen_fd)
            take_peer(port);
}

static uint8_t *slot_of(const struct shared_port *shared, uint8_t *slots, uint32_t number)
{
    return slots + (size_t)(number & (shared->slots - 1)) * shared->slot_bytes;
}

/* ---------------------------------------------------------------- frames in */

/* The number of waiting frames; more than the number of slots is impossible. */
static uint32_t waiting(struct shared_port *shared)
{
    uint32_t count = atomic_load_explicit(&shared->area->in.head.value, memory_order_acquire) - shared->taken;
    shared->broken |= count > shared->slots;
    return shared->broken ? 0 : count;
}

/* Begin to fetch a slot in the background: its lines are in the cache of the other side's processor, and the program
   would wait for those of every frame. */
static void fetch_to_read(const uint8_t *slot, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += RING_LINE)
        __builtin_prefetch(slot + at, 0);
}

static void fetch_to_write(const uint8_t *slot, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += RING_LINE)
        __builtin_prefetch(slot + at, 1);
}

/* `next` is the slot of the frame after this one, NULL if there is none; frames that follow one another are alike. */
static void take_frame(struct port *port, const uint8_t *slot, const uint8_t *next)
{
    struct shared_port *shared = port->io;
    uint32_t length = *(const volatile uint32_t *)slot;     /* read it once: the next read may differ */
    if (unlikely(length > shared->slot_bytes - RING_FRAME_AT)) {
        port->statistics.rx_packets++;
        port->statistics.rx_malformed++;
        return;
    }
    if (next)
        fetch_to_read(next, RING_FRAME_AT + length);
    memcpy(shared->frame, slot + RING_FRAME_AT, length);
    port_receive(port, shared->frame, length, NULL);
}

/* Fetch the entries that the program will look up for a frame that waits in the ring. */
static void expect_frame(struct port *port, const uint8_t *slot)
{
    const struct shared_port *shared = port->io;
    uint32_t length = *(const volatile uint32_t *)slot;
    if (length <= shared->slot_bytes - RING_FRAME_AT)
        look_ahead(port, slot + RING_FRAME_AT, length);
}

static void shared_poll(struct port *port)
{
    struct shared_port *shared = port->io;
    if (!shared->area)
        return;
    if (shared->asleep)
        ring_wake_up(&shared->area->switch_asleep);
    shared->asleep = false;
    uint32_t count = waiting(shared);
    if (!count)
        return;
    uint32_t turn = count < SHARED_TURN ? count : SHARED_TURN;
    port->engine->took = true;
    uint32_t seen = looks_ahead(port->engine) ? 0 : turn;
    for (uint32_t i = 0; i < turn; i++, shared->taken++) {
        for (; seen < turn && seen <= i + P4_AHEAD; seen++) {
            fetch_to_read(slot_of(shared, shared->in, shared->taken + P4_AHEAD + seen - i), RING_LINE);
            expect_frame(port, slot_of(shared, shared->in, shared->taken + seen - i));
        }
        const uint8_t *next = i + 1 < turn ? slot_of(shared, shared->in, shared->taken + 1) : NULL;
        take_frame(port, slot_of(shared, shared->in, shared->taken), next);
    }
    atomic_store_explicit(&shared->area->in.tail.value, shared->taken, memory_order_release);
    if (ring_asleep(&shared->area->peer_asleep) == RING_WANTS_ROOM && count - turn <= shared->slots / 2)
        wake_peer(shared);
}

/* ---------------------------------------------------------------- frames out */

static uint8_t *shared_reserve(struct port *port)
{
    struct shared_port *shared = port->io;
    if (!shared->area)
        return shared->frame;           /* no peer: see shared_commit */
    if (unlikely(shared->free_until - shared->written < shared->wide)) {
        uint32_t tail = atomic_load_explicit(&shared->area->out.tail.value, memory_order_acquire);
        if (shared->written - tail > shared->slots) {
            shared->broken = true;
            return NULL;
        }
        shared->free_until = tail + shared->slots;
        if (shared->free_until - shared->written < shared->wide)
            return NULL;
    }
    return slot_of(shared, shared->out, shared->written) + RING_FRAME_AT;
}

static void publish(struct shared_port *shared)
{
    atomic_store_explicit(&shared->area->out.head.value, shared->written, memory_order_release);
    shared->published = shared->written;
}

static void shared_commit(struct port *port, uint32_t length)
{
    struct shared_port *shared = port->io;
    if (unlikely(!shared->area || length > shared->slot_bytes - RING_FRAME_AT)) {
        uint64_t *counter = shared->area ? &port->statistics.tx_too_long : &port->statistics.tx_no_peer;
        (*counter)++;
        if (unlikely(port->engine->capture))
            capture_unsent(port, shared_reserve(port), length, "blocked");
        return;
    }
    memcpy(slot_of(shared, shared->out, shared->written), &length, sizeof length);
    shared->written++;
    fetch_to_write(slot_of(shared, shared->out, shared->written), RING_FRAME_AT + length);
    port->statistics.tx_packets++;
    port->statistics.tx_bytes += length;
    if (shared->written - shared->published >= SHARED_PUBLISH)
        publish(shared);
}

/* Wake a waiting peer for all published frames. */
static void settle(struct shared_port *shared)
{
    shared->owes = false;
    shared->owed_turns = 0;
    wake_peer(shared);
}

/* True if the peer can sleep on, as more frames follow. */
static bool may_owe(const struct port *port)
{
    struct shared_port *shared = port->io;
    uint32_t unread = shared->written - atomic_load_explicit(&shared->area->out.tail.value, memory_order_relaxed);
    return port->engine->took && unread < shared->slots / 4 && ++shared->owed_turns < SHARED_HELD_TURNS;
}

static void shared_flush(struct port *port)
{
    struct shared_port *shared = port->io;
    if (!shared->area)
        return;
    publish(shared);
    if (ring_asleep(&shared->area->peer_asleep) == RING_AWAKE)
        return;
    shared->owes = true;
    if (!port->engine->took)            /* `idle` may not be called again */
        settle(shared);
}

/* ---------------------------------------------------------------- sleep, life */

static bool shared_rest(struct port *port)
{
    struct shared_port *shared = port->io;
    if (shared->broken) {
        port->statistics.rx_malformed++;
        forget_peer(shared);
    }
    if (!shared->area)
        return true;
    if (shared->owes && !may_owe(port))
        settle(shared);
    ring_fall_asleep(&shared->area->switch_asleep, RING_WANTS_FRAMES);
    shared->asleep = true;
    return !waiting(shared) && !shared->broken && !shared->owes;
}

static void shared_close(struct port *port)
{
    struct shared_port *shared = port->io;
    if (shared) {
        forget_peer(shared);
        close(shared->listen_fd);
    }
    if (port->fd >= 0)
        close(port->fd);
    free(shared);
}

int engine_add_shared(struct engine *engine, uint16_t number, const struct engine_impairments *rx,
                      const struct engine_impairments *tx, int fd, char *error)
{
    struct port *port = port_add(engine, number, rx, tx, 64, error);
    if (!port) {
        close(fd);
        return -1;
    }
    size_t size = (sizeof(struct shared_port) + 63) & ~(size_t)63;
    struct shared_port *shared = port->io = aligned_alloc(64, size);
    if (!shared) {
        close(fd);
        port_remove(port);
        return fail(error, "port %u: out of memory", number);
    }
    memset(shared, 0, size);
    shared->listen_fd = fd;
    shared->peer_fd = -1;
    port->close = shared_close;
    port->fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (port->fd < 0 || epoll_ctl(port->fd, EPOLL_CTL_ADD, fd, &event)) {
        int reason = errno;
        port_remove(port);
        return fail(error, "port %u: cannot watch its socket: %s", number, strerror(reason));
    }
    port->receive = shared_receive;
    port->flush = shared_flush;
    port->reserve = shared_reserve;
    port->commit = shared_commit;
    port->poll = shared_poll;
    port->rest = shared_rest;
    return 0;
}
