/* Interface ports: an AF_PACKET socket on a veth or any other Ethernet interface.
 *
 * With PACKET_VNET_HDR the kernel passes superframes and unfinished checksums as they are; we split and
 * finish them (engine_offload.c), run the program on real frames, and join frames on the way out where possible.
 * Frames come in by a ring (engine_packet_ring.c); without a ring, or if they are long, by recvmmsg.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine_internal.h"
#include "engine_offload.h"
#include "engine_packet_ring.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

#define INTERFACE_OUTBOX_BYTES (512 << 10)
#define INTERFACE_OUTBOX_MOST (32 << 20)    /* while the interface's queueing discipline takes no more */
#define RESUME_NS 100000                    /* no event reports that it accepts frames again */
#define RESUMES 1000                        /* without progress: then give up this frame */
#define RING_FRAMES 32                                /* most frames taken from a ring before the next port's turn */
#define INTERFACE_MESSAGES 8                          /* per sendmmsg */
#define PARTS (2 + OFFLOAD_MAX_RUN)         /* offload header, frame headers, payloads */
#define VLAN_BYTES 4

struct interface_port {
    struct packet_ring ring;
    uint64_t lost;                          /* before they reached us */
    bool joins;
    uint32_t resumes;                       /* since the last frame left */
};

union interface_control {
    struct cmsghdr header;                  /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

/* ---------------------------------------------------------------- receive */

static void take(void *context, const uint8_t *frame, uint32_t length)
{
    port_receive(context, frame, length, NULL);
}

/* The kernel keeps the VLAN tag beside the frame; put it back. `frame` has room in front. */
static uint8_t *restore_vlan(const struct tpacket_auxdata *beside, uint8_t *frame, uint32_t *length,
                             struct offload *offload)
{
    if (!(beside->tp_status & TP_STATUS_VLAN_VALID) || *length < 2 * ETH_ALEN)
        return frame;
    uint16_t type = beside->tp_status & TP_STATUS_VLAN_TPID_VALID ? beside->tp_vlan_tpid : ETH_P_8021Q;
    uint16_t tag[2] = {htons(type), htons(beside->tp_vlan_tci)};
    memmove(frame - VLAN_BYTES, frame, 2 * ETH_ALEN);
    frame -= VLAN_BYTES;
    memcpy(frame + 2 * ETH_ALEN, tag, VLAN_BYTES);
    *length += VLAN_BYTES;
    offload->checksum_start = (uint16_t)(offload->checksum_start + VLAN_BYTES);
    return frame;
}

static void receive_one(struct port *port, struct offload *offload, uint8_t *frame, uint32_t length,
                        const struct tpacket_auxdata *beside, bool is_cut)
{
    frame = restore_vlan(beside, frame, &length, offload);
    if (is_cut || offload_split(offload, frame, length, take, port)) {
        port->statistics.rx_packets++;
        port->statistics.rx_bytes += length;
        port->statistics.rx_malformed++;
    }
}

static struct tpacket_auxdata auxdata(struct msghdr *message)
{
    struct tpacket_auxdata data = {0};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA)
            memcpy(&data, CMSG_DATA(c), sizeof data);
    return data;
}

/* Take up to `most` frames, IO_BUFFERS at most, from the socket's queue; returns recvmmsg's result. */
static int receive_queued(struct port *port, unsigned most)
{
    struct mmsghdr messages[IO_BUFFERS];
    struct iovec parts[IO_BUFFERS][2];
    struct offload offloads[IO_BUFFERS];
    struct sockaddr_ll senders[IO_BUFFERS];
    union interface_control controls[IO_BUFFERS];
    for (unsigned i = 0; i < most; i++) {
        parts[i][0] = (struct iovec){&offloads[i], sizeof offloads[i]};
        parts[i][1] = (struct iovec){port->engine->io_buffers[i] + VLAN_BYTES, IO_BUFFER_BYTES - VLAN_BYTES};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &senders[i], .msg_namelen = sizeof senders[i], .msg_iov = parts[i], .msg_iovlen = 2,
            .msg_control = &controls[i], .msg_controllen = sizeof controls[i]};
    }
    int received = recvmmsg(port->fd, messages, most, MSG_DONTWAIT, NULL);
    for (int i = 0; i < received; i++) {
        struct msghdr *message = &messages[i].msg_hdr;
        if (senders[i].sll_pkttype == PACKET_OUTGOING || messages[i].msg_len < sizeof offloads[i])
            continue;
        struct tpacket_auxdata beside = auxdata(message);
        receive_one(port, &offloads[i], parts[i][1].iov_base, messages[i].msg_len - (uint32_t)sizeof offloads[i],
                    &beside, message->msg_flags & MSG_TRUNC);
    }
    return received;
}

/* Take frames that were too long for their slots from the queue; returns the number of slots. */
static uint32_t receive_long(struct port *port)
{
    struct interface_port *interface = port->io;
    const struct tpacket2_hdr *slot;
    unsigned count = 1;
    while (count < IO_BUFFERS && (slot = packet_ring_slot(&interface->ring, count))
           && slot->tp_status & TP_STATUS_COPY)
        count++;
    int received = receive_queued(port, count);
    if (received < 0 && errno == EAGAIN) {      /* should not happen, and must not cause an endless loop */
        interface->lost++;
        received = 1;
    }
    return received > 0 ? (uint32_t)received : 0;
}

static void receive_slot(struct port *port, struct tpacket2_hdr *slot)
{
    struct interface_port *interface = port->io;
    if (slot->tp_snaplen < slot->tp_len) {
        interface->lost++;
        return;
    }
    uint8_t *frame = (uint8_t *)slot + slot->tp_mac;
    struct offload offload;
    memcpy(&offload, frame - sizeof offload, sizeof offload);
    struct tpacket_auxdata beside = {.tp_status = slot->tp_status, .tp_vlan_tci = slot->tp_vlan_tci,
                                     .tp_vlan_tpid = slot->tp_vlan_tpid};
    receive_one(port, &offload, frame, slot->tp_snaplen, &beside, false);
}

/* A socket reports an error (such as an interface that went down) until the error is read. */
static void take_error(int fd)
{
    int error;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
}

static void interface_receive(struct port *port)
{
    struct interface_port *interface = port->io;
    struct packet_ring *ring = &interface->ring;
    if (!ring->slots) {
        receive_queued(port, IO_BUFFERS);
        return;
    }
    struct tpacket2_hdr *slot = packet_ring_slot(ring, 0);
    if (!slot)
        take_error(port->fd);
    for (uint32_t work = 0; slot && work < RING_FRAMES; slot = packet_ring_slot(ring, 0)) {
        bool is_long = slot->tp_status & TP_STATUS_COPY;
        uint32_t slots = is_long ? receive_long(port) : 1;
        if (!slots)
            break;
        if (!is_long)
            receive_slot(port, slot);
        packet_ring_give_back(ring, slots);
        work += is_long ? slots * (RING_FRAMES / IO_BUFFERS) : 1;
    }
}

/* Frames dropped by the kernel because ring or queue were full. Each query resets the kernel's count. */
static uint64_t interface_drops(struct port *port)
{
    struct interface_port *interface = port->io;
    struct tpacket_stats since = {0};
    socklen_t size = sizeof since;
    getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &since, &size);
    interface->lost += since.tp_drops;
    return interface->lost;
}

/* ---------------------------------------------------------------- send */

struct batch {
    struct mmsghdr messages[INTERFACE_MESSAGES];
    struct iovec parts[INTERFACE_MESSAGES][PARTS];
    struct offload offloads[INTERFACE_MESSAGES];
    uint8_t headers[INTERFACE_MESSAGES][OFFLOAD_UDP_HEADERS];
    uint32_t runs[INTERFACE_MESSAGES];
};

/* Describe `run` frames from `frame` on as one message; returns the start of the next frame. */
static uint8_t *describe(struct batch *batch, unsigned i, uint8_t *frame, const uint32_t *lengths,
                         uint32_t run)
{
    struct iovec *parts = batch->parts[i];
    unsigned count = 1;
    batch->offloads[i] = (struct offload){0};
    parts[0] = (struct iovec){&batch->offloads[i], sizeof batch->offloads[i]};
    if (run == 1) {
        parts[count++] = (struct iovec){frame, lengths[0]};
        frame += lengths[0];
    } else {
        offload_join(frame, lengths, run, &batch->offloads[i], batch->headers[i]);
        parts[count++] = (struct iovec){batch->headers[i], OFFLOAD_UDP_HEADERS};
        for (uint32_t k = 0; k < run; k++) {
            parts[count++] = (struct iovec){frame + OFFLOAD_UDP_HEADERS, lengths[k] - OFFLOAD_UDP_HEADERS};
            frame += lengths[k];
        }
    }
    batch->messages[i].msg_hdr = (struct msghdr){.msg_iov = parts, .msg_iovlen = count};
    batch->runs[i] = run;
    return frame;
}

static int send_batch(struct port *port, struct batch *batch)
{
    struct interface_port *interface = port->io;
    struct outbox *box = &port->outbox;
    uint32_t next = box->first;
    uint8_t *frame = box->bytes + box->sent;
    unsigned count = 0;
    while (count < INTERFACE_MESSAGES && next < box->count) {
        uint32_t run = interface->joins ? offload_run(frame, box->lengths + next, box->count - next) : 1;
        frame = describe(batch, count, frame, box->lengths + next, run);
        next += run;
        count++;
    }
    return sendmmsg(port->fd, batch->messages, count, MSG_DONTWAIT);
}

/* The queueing discipline is full; keep the refused frames and try again soon. */
static bool wait_for_queue(struct port *port)
{
    struct interface_port *interface = port->io;
    uint64_t time_ns = port->engine->now_ns + RESUME_NS;
    if (interface->resumes == RESUMES || !schedule(port->engine, time_ns, port, EVENT_RESUME, NULL)) {
        interface->resumes = 0;
        return false;
    }
    interface->resumes++;
    port->blocked = port->resume_scheduled = true;
    return true;
}

static void interface_flush(struct port *port)
{
    struct interface_port *interface = port->io;
    struct outbox *box = &port->outbox;
    struct batch batch;
    while (box->first < box->count) {
        int sent = send_batch(port, &batch);
        for (int i = 0; i < sent; i++)
            outbox_leave(port, batch.runs[i], &port->statistics.tx_packets);
        if (sent > 0)
            interface->resumes = 0;
        if (sent > 0 || errno == EINTR)
            continue;
        if (errno == ENOBUFS && wait_for_queue(port))
            return;
        if (errno == EAGAIN) {
            port_block(port);
            return;
        }
        if (errno == EINVAL && batch.runs[0] > 1)
            interface->joins = false;       /* a kernel before 6.2: send one by one from now on */
        else
            outbox_leave(port, batch.runs[0],
                         errno == EMSGSIZE ? &port->statistics.tx_too_long : &port->statistics.tx_blocked);
    }
}

/* ---------------------------------------------------------------- life */

static void interface_close(struct port *port)
{
    struct interface_port *interface = port->io;
    if (interface)
        packet_ring_close(&interface->ring);
    if (port->fd >= 0)
        close(port->fd);
    free(interface);
}

/* Returns the name of the failed step, with errno set, or NULL. */
static const char *open_interface(struct port *port, const char *name)
{
    unsigned index = if_nametoindex(name);
    if (!index)
        return "find";
    /* Protocol 0: nothing arrives before everything is set and bound. */
    port->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (port->fd < 0)
        return "open a packet socket on";
    int one = 1;
    if (setsockopt(port->fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one)
        || setsockopt(port->fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof one))
        return "set up";
    struct interface_port *interface = port->io;
    if (setsockopt(port->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) == 0)
        packet_ring_open(&interface->ring, port->fd);   /* without a ring: by the queue, filtered by type */
    set_socket_buffers(port->fd);
    struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    if (setsockopt(port->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous))
        return "listen to all addresses on";
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = (int)index};
    if (bind(port->fd, (struct sockaddr *)&address, sizeof address))
        return "bind to";
    return NULL;
}

int engine_add_interface(struct engine *engine, uint16_t number, const struct engine_impairments *rx,
                         const struct engine_impairments *tx, const char *name, char *error)
{
    if (!io_buffers_ready(engine))
        return fail(error, "port %u: out of memory", number);
    struct port *port = port_add(engine, number, rx, tx, INTERFACE_OUTBOX_BYTES, error);
    if (!port)
        return -1;
    port->close = interface_close;
    port->outbox.most = INTERFACE_OUTBOX_MOST;
    struct interface_port *interface = port->io = calloc(1, sizeof *interface);
    const char *failed = interface ? open_interface(port, name) : "allocate";
    if (failed) {
        int reason = errno;
        port_remove(port);
        return fail(error, "port %u: cannot %s interface %s: %s%s", number, failed, name, strerror(reason),
                    reason == EPERM ? " (needs root or CAP_NET_RAW)" : "");
    }
    interface->joins = true;
    port->drops = interface_drops;
    port->receive = interface_receive;
    port->flush = interface_flush;
    return 0;
}
