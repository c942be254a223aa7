/* Declarations that the parts of the engine share; engine.h is the interface. */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "engine.h"

#define IO_BUFFERS 8                /* messages per receive call */
#define IO_BUFFER_BYTES 66048       /* a 64 KiB superframe with its headers */

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Frames that wait to leave a port, back to back. The next frame is written directly behind the last. */
struct outbox {
    uint8_t *bytes;
    uint64_t *times_us;             /* memory ports only */
    uint32_t *lengths;
    size_t capacity, used, sent;    /* bytes; `sent` of them have left */
    size_t most;                    /* limit of `capacity`, bytes */
    uint32_t slots, count, first;   /* frames; `first` is the first one still waiting */
};

/* A packet between ingress and egress, with everything it refers to. */
struct queued {
    struct p4_packet *packet;
    struct frame *frame;
    uint32_t length;
    uint32_t truncate;
    uint32_t depth;
    uint16_t ingress_port;
    struct p4_copy copy;
};

/* Packets of one priority that wait for a port's rate: a ring, so that later packets can be found without reading the
   ones before them. */
struct queue {
    struct waiting {
        struct queued *item;
        const struct frame *frame;  /* the item's */
    } *ring;
    uint64_t room, first, depth;    /* `room` is a power of two, or 0 */
};

#define QUEUE_AHEAD 3               /* number of packets in front to prefetch */

static inline const struct waiting *waiting_in(const struct queue *queue, uint64_t place)
{
    return &queue->ring[(queue->first + place) & (queue->room - 1)];
}

#define FETCHED_ITEM 576            /* bytes: in most programs all except the large headers */
#define FETCHED_FRAME 384

P4_FETCH void fetch_waiting(const struct waiting *waiting)
{
    p4_fetch_lines(waiting->item, FETCHED_ITEM);
    p4_fetch_lines(waiting->frame, FETCHED_FRAME);
}

/* Free blocks of one size, for reuse: malloc costs more than the rest of queueing. */
struct spares {
    struct spare {
        struct spare *next;
    } *first;
};

#define FRAME_SIZES 17              /* classes of frames by their size */

/* A frame with a reference count; it never changes. */
struct frame {
    uint32_t references, length;
    uint8_t size;                   /* its class: if below FRAME_SIZES, it returns to the spares of this class */
    uint8_t bytes[];
};

struct frames {
    struct spares of[FRAME_SIZES];
};

/* Frames that have left engines with cables, in the order of leaving. */
struct departures {
    struct departed {
        struct frame *frame;        /* by a cable; NULL: frames wait at an end */
        uint64_t time_us;
        uint32_t engine, way;       /* `way` of the port */
    } *all;
    uint32_t count, room;
    bool short_of_memory;
};

struct direction {
    struct engine_impairments config;
    uint64_t random;                /* splitmix64 state */
    uint64_t link_free_ns;          /* time at which the rate allows the next frame */
    uint64_t last_ns;               /* no frame in order leaves before this: jitter keeps order */
    bool impaired;                  /* false: there are no impairments */
};

struct port;

struct port {
    struct engine *engine;
    uint16_t number;
    bool dirty;                     /* on the engine's list of ports to flush */
    bool is_cpu;
    bool blocked;                   /* the socket was full: wait until it is writable, or for EVENT_RESUME */
    bool resume_scheduled;
    bool dequeue_scheduled;
    int fd;                         /* -1: memory */
    struct direction rx, tx;
    struct outbox outbox;
    bool departs_later;             /* impaired or cabled: frames are not written in place */
    bool cabled;                    /* frames leave to `departures` instead of the outbox */
    bool noted;                     /* the departures note that frames wait here */
    uint32_t way;                   /* number of its cable, or of its end, counted after all cables */
    struct queue queues[P4_PRIORITIES];
    uint64_t queue_depth;           /* of all of them */
    uint64_t *rx_departures;        /* ring: for each frame waiting for the rx rate, the time when the link is free */
    uint64_t rx_waiting, rx_oldest;
    struct engine_statistics statistics;
    struct captured *captured;      /* NULL until the first frame */
    void *io;
    /* Only for ports whose outbox is memory that the far end reads; else NULL. */
    uint8_t *(*reserve)(struct port *);             /* as outbox_reserve */
    void (*commit)(struct port *, uint32_t length); /* as outbox_commit */
    void (*poll)(struct port *);                    /* take the waiting frames, up to a limit */
    bool (*rest)(struct port *);                    /* true if no frame waits, and the next one will wake us */
    void (*receive)(struct port *);         /* take the socket's frames, up to a limit */
    void (*flush)(struct port *);           /* send the outbox; keep the frames that the socket refuses */
    uint64_t (*drops)(struct port *);       /* frames dropped by the kernel; NULL: the port does not use the kernel */
    void (*close)(struct port *);
};

enum event_kind { EVENT_RX, EVENT_TX, EVENT_DEQUEUE, EVENT_RESUME };

struct event {
    uint64_t time_ns, sequence;
    struct port *port;
    struct frame *frame;            /* of EVENT_RX and EVENT_TX; else NULL */
    enum event_kind kind;
};

struct group {
    uint32_t count, truncate;
    struct engine_member members[];
};

/* Memory for the packets in progress. Engines with cables run in turn and share one, which stays in the cache. */
struct workspace {
    struct p4_packet **packets;     /* scratch, a stack: one per packet in progress */
    uint8_t *frame;                 /* room for one output frame that no outbox holds */
    struct spares items;            /* of queues */
};

struct engine {
    pthread_mutex_t gate, mutex;    /* see engine_lock */
    _Atomic(uintptr_t) owner;
    uint32_t owner_depth;

    const struct p4_program *program;
    struct p4_pipeline *pipeline;
    struct workspace *work, own_work;
    uint32_t packets_used;
    uint8_t *io_buffers[IO_BUFFERS];    /* receive buffers for all sockets: shared, so that they stay in cache */

    struct port *ports[ENGINE_PORTS];
    struct port *dirty[ENGINE_PORTS];
    struct port *polled[ENGINE_PORTS];      /* those with `poll` */
    uint32_t polled_count;
    bool took;                      /* some of them had frames in this turn of the loop: do another turn */
    uint32_t dirty_count;
    struct group **groups, **sessions, **exclusions;        /* 65536 each, */
    uint32_t numbers;               /* and the allocated number of them */

    struct event *heap;
    size_t heap_size, heap_capacity;
    uint64_t sequence;
    uint64_t now_ns;
    bool has_queues;                /* some port has a rate limit */
    struct frames *frames, own_frames;  /* spare frames: shared like `work` */
    struct departures *departures;      /* NULL: there are no cables */
    uint32_t number;                    /* among the engines with cables */
    uint32_t passes;                /* passes left for the frame in progress */

    struct capture *capture;        /* NULL: none */
    struct engine_statistics statistics;
    uint64_t start_ns;
    int wake_fd, cpu_fd, epoll_fd;  /* the last one only while engine_run serves the ports */
    _Atomic(bool) running, stopping;
    bool cpu_pending, newly_blocked;
    uint64_t armed_ns;
};

/* The files form layers: a file calls only functions of files listed above it. The top layers are the ports with
 * sockets (engine_udp.c, engine_interface.c and its engine_packet_ring.c) or rings (engine_shared.c), the engine as an
 * object (engine_core.c) and the real-time driver (engine_loop.c), which engine.h declares.
 */

/* engine_base.c */
uint64_t clock_ns(void);
void *spare_take(struct spares *, size_t bytes);        /* all blocks of a pool have the same size; or NULL */
void spare_return(struct spares *, void *block);
void spares_free(struct spares *);
void frames_free(struct frames *);
struct frame *frame_new(struct engine *, const uint8_t *bytes, uint32_t length);    /* a copy, one reference; or NULL */
void frame_release(struct frames *, struct frame *);    /* drops a reference; does nothing for NULL */
int fail(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* engine_capture.c: except for the last two, call only if `capture` is not NULL. `fate` NULL: do not record a fate. */
void capture_received(struct port *, const struct p4_packet *, const uint8_t *frame, uint32_t length);
void capture_refused(struct port *, const uint8_t *frame, uint32_t length, const char *fate);
void capture_waited(struct engine *, uint32_t waited_us, uint32_t depth);   /* the next frame to send */
void capture_sent(struct port *, const uint8_t *frame, uint32_t length, const char *fate);
void capture_unsent(struct port *, const uint8_t *frame, uint32_t length, const char *fate);
void capture_program(struct engine *);          /* the frame is duplicated */
void capture_forget(struct port *);

/* engine_sockets.c */
bool io_buffers_ready(struct engine *);
void set_socket_buffers(int fd);
uint64_t socket_drops(struct port *);           /* frames dropped by the kernel for lack of buffer */
void port_block(struct port *);                 /* its socket is full */

/* engine_ports.c */
struct port *port_add(struct engine *, uint16_t number, const struct engine_impairments *rx,
                      const struct engine_impairments *tx, size_t outbox_bytes, char *error);
void port_remove(struct port *);
uint8_t *outbox_reserve(struct port *);         /* P4_MAX_FRAME bytes, or NULL */
void outbox_commit(struct port *, uint32_t length);
void outbox_append(struct port *, const uint8_t *frame, uint32_t length);   /* a copy, if there is room */
void leave_now(struct port *, const uint8_t *frame, uint32_t length);       /* a copy, by a cable if there is one */
void outbox_put(struct port *, uint8_t *frame, uint32_t length);            /* `frame` comes from outbox_reserve */
void depart(struct port *, struct frame *);     /* by a cable, now; takes over the reference */
/* Remove the first `frames`, and count them in `counter`. */
void outbox_leave(struct port *, uint32_t frames, uint64_t *counter);
void outbox_forget_sent(struct port *);         /* reuse the room of frames that have left */
void port_resume(struct port *);                /* a blocked port may send again */
void flush_ports(struct engine *);

/* engine_events.c */
/* Takes over a reference to `frame`, also on failure. */
bool schedule(struct engine *, uint64_t time_ns, struct port *, enum event_kind, struct frame *frame);
struct event next_event(struct engine *);       /* removes it; call only if there is one */

/* engine_impair.c */
bool link_hit(struct direction *, uint64_t threshold);
uint64_t link_time_ns(const struct direction *, uint32_t length);
uint64_t pass_link(struct direction *, uint32_t length, uint64_t now_ns);
uint64_t link_arrival(struct direction *, uint64_t time_ns, uint64_t *reordered);
/* `frame` comes from outbox_reserve. */
void port_transmit(struct port *, uint8_t *frame, uint32_t length);

/* engine_tm.c */
/* `shared` has the frame's bytes, or is NULL. */
void tm_ingress(struct engine *, struct port *, const uint8_t *frame, uint32_t length, struct frame *shared);
void tm_dequeue(struct port *);
void tm_discard_queues(struct engine *);

/* engine_intake.c */
bool looks_ahead(const struct engine *);        /* true if the next function pays for waiting frames */
void look_ahead(struct port *, const uint8_t *frame, uint32_t length);  /* another process may change the bytes */
/* `shared` has the frame's bytes, or is NULL. */
void port_receive(struct port *, const uint8_t *frame, uint32_t length, struct frame *shared);
void run_events(struct engine *, uint64_t now_ns);

#endif
