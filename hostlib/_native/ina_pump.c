/* Moves packets between a UDP socket and a core until the collective is done or Python has to decide. */
#define _GNU_SOURCE
#include "ina_core.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

size_t ina_io_bytes(void) { return sizeof(struct ina_io); }

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

static void note_error(struct ina_io *io, int error)
{
    io->last_error = error;
    io->errors++;
}

static ssize_t send_packets(struct ina_io *io, const uint8_t *data, int64_t packets, uint32_t packet_bytes)
{
    struct iovec part = {(void *)data, (size_t)packets * packet_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr align;
    } control;
    if (packets > 1) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_UDP;
        header->cmsg_type = UDP_SEGMENT;
        header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t size = (uint16_t)packet_bytes;
        memcpy(CMSG_DATA(header), &size, sizeof size);
    }
    return sendmsg(io->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Hand the send buffer to the socket. Returns 0 if the socket is full. A packet that the network refuses
   counts as lost: the retransmission timer deals with it. */
static int flush(struct ina_io *io, uint32_t packet_bytes)
{
    while (io->pending > 0) {
        int64_t burst = io->gso ? io->pending : 1;
        if (send_packets(io, io->send_buffer + io->pending_from * packet_bytes, burst, packet_bytes) < 0) {
            if (is_transient(errno))
                return 0;
            if (burst > 1 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
                io->gso = 0;            /* a device without segmentation offload */
                continue;
            }
            note_error(io, errno);
        }
        io->pending -= burst;
        io->pending_from += burst;
    }
    io->pending_from = 0;
    return 1;
}

/* Receive once. Returns the bytes, 0 if there is nothing. */
static int64_t receive(struct ina_io *io, int64_t *segment)
{
    struct iovec part = {io->receive_buffer, (size_t)io->receive_bytes};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t bytes = recvmsg(io->fd, &message, MSG_DONTWAIT);
    if (bytes <= 0) {
        if (bytes < 0 && !is_transient(errno))
            note_error(io, errno);      /* the report of an earlier send that nobody took */
        return 0;
    }
    *segment = bytes;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(header), sizeof size);
            if (size > 0)
                *segment = size;
        }
    }
    return bytes;
}

/* Wait for the socket. Returns 0 to go on, 1 if a signal came, -1 on failure. */
static int wait_for_socket(struct ina_io *io, int64_t until, int64_t now)
{
    int64_t left = until - now;
    struct timespec timeout = {left / 1000000000, left % 1000000000};
    struct pollfd poll_fd = {io->fd, (short)(POLLIN | (io->pending ? POLLOUT : 0)), 0};
    if (ppoll(&poll_fd, 1, &timeout, NULL) < 0) {
        if (errno == EINTR)
            return 1;
        note_error(io, errno);
        return -1;
    }
    return 0;
}

/* Run until the collective is complete, a time-out is due, `deadline` has passed, a signal has come, the ranks
   disagree, or the socket fails. Returns PUMP_*. */
int ina_pump(struct ina_core *core, struct ina_io *io, int64_t deadline)
{
    int64_t due = 0;                    /* no time-out is due before this; 0: not known */
    for (;;) {
        int64_t now = now_ns();
        while (flush(io, core->packet_bytes)
               && (io->pending = ina_emit(core, io->send_buffer, io->send_packets, now)) > 0)
            ;
        if (core->disagree_index >= 0)
            return PUMP_DISAGREE;
        if (core->completed == core->total) {
            io->pending = io->pending_from = 0;
            return PUMP_DONE;
        }

        int64_t bytes, segment;
        int received = 0;
        while (core->ready_count < io->send_packets && core->completed < core->total
               && (bytes = receive(io, &segment)) > 0) {
            now = now_ns();
            ina_absorb(core, io->receive_buffer, bytes, segment, now);
            received = 1;
        }
        if (received && (now < due || core->completed == core->total))
            continue;
        due = ina_next_timeout(core);
        due = due < deadline ? due : deadline;
        if (now >= due)
            return PUMP_TIMER;
        if (received)
            continue;
        int woken = wait_for_socket(io, due, now);
        if (woken != 0)
            return woken > 0 ? PUMP_INTERRUPTED : PUMP_ERROR;
    }
}
