/* Batches over UDP with segmentation offload both ways. */
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

int64_t ina_now_ns(void)
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

int ina_flush(struct ina_io *io, uint32_t packet_bytes)
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

static int from_peer(const struct ina_io *io, const struct sockaddr_in *sender)
{
    return sender->sin_addr.s_addr == io->peer_address && sender->sin_port == io->peer_port;
}

int64_t ina_receive(struct ina_io *io, int64_t *segment)
{
    struct sockaddr_in sender = {0};
    struct iovec part = {io->receive_buffer, (size_t)io->receive_bytes};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message;
    ssize_t bytes;
    /* The kernel drops other senders' packets to a connected socket, but keeps those from before it was connected. */
    do {
        message = (struct msghdr){.msg_name = &sender, .msg_namelen = sizeof sender, .msg_iov = &part, .msg_iovlen = 1,
                                  .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
        bytes = recvmsg(io->fd, &message, MSG_DONTWAIT);
    } while (bytes >= 0 && !from_peer(io, &sender) && ++io->strangers);
    if (bytes <= 0) {
        if (bytes < 0 && !is_transient(errno))
            note_error(io, errno);      /* the error of an earlier, refused send */
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

int ina_wait(struct ina_io *io, int control, int64_t until, int64_t now)
{
    int64_t left = until > now ? until - now : 0;
    struct timespec timeout = {left / 1000000000, left % 1000000000};
    struct pollfd fds[2] = {{io->fd, (short)(POLLIN | (io->pending ? POLLOUT : 0)), 0}, {control, POLLIN, 0}};
    if (ppoll(fds, 2, &timeout, NULL) < 0) {
        if (errno == EINTR)
            return 1;
        note_error(io, errno);
        return -1;
    }
    return fds[1].revents ? 2 : 0;
}
