/* UDP ports: one Ethernet frame is one datagram on 127.0.0.1.
 *
 * A port has one peer, as a link has one far end: the configured peer, or else the first sender. A datagram from
 * another address is counted and dropped, and never changes the peer. The socket is not connected, as the kernel would
 * then drop these datagrams uncounted.
 *
 * Segmentation offload makes this fast. The kernel hands over a run of equal datagrams as one buffer
 * (UDP_GRO), and takes a run of equal frames, the last one possibly shorter, as one send (UDP_SEGMENT).
 * The outbox holds frames back to back, so a run is sent from where egress wrote it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine_internal.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define UDP_OUTBOX_BYTES (512 << 10)
#define MAX_RUN_FRAMES 64           /* UDP_MAX_SEGMENTS of older kernels */
#define MAX_RUN_BYTES 65507         /* UDP payload over IPv4 */
#define UDP_MESSAGES 16                 /* per sendmmsg */

struct udp_port {
    struct sockaddr_in peer;
    bool has_peer;
    bool segments;
    int everywhere_fd;              /* see take_everywhere; -1: left to the socket's creator */
};

union udp_control {
    struct cmsghdr header;          /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* ---------------------------------------------------------------- receive */

static uint32_t segment_size(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            return size > 0 ? (uint32_t)size : 0;
        }
    }
    return 0;
}

/* True if a datagram comes from the peer; without a peer, its sender becomes the peer. */
static bool from_peer(struct udp_port *udp, const struct sockaddr_in *sender)
{
    if (unlikely(!udp->has_peer)) {
        udp->peer = *sender;
        udp->has_peer = true;
    }
    return sender->sin_port == udp->peer.sin_port && sender->sin_addr.s_addr == udp->peer.sin_addr.s_addr;
}

static void udp_receive(struct port *port)
{
    struct udp_port *udp = port->io;
    struct mmsghdr messages[IO_BUFFERS];
    struct iovec parts[IO_BUFFERS];
    struct sockaddr_in senders[IO_BUFFERS];
    union udp_control controls[IO_BUFFERS];
    for (int i = 0; i < IO_BUFFERS; i++) {
        parts[i] = (struct iovec){port->engine->io_buffers[i], IO_BUFFER_BYTES};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = &senders[i], .msg_namelen = sizeof senders[i], .msg_iov = &parts[i], .msg_iovlen = 1,
            .msg_control = &controls[i], .msg_controllen = sizeof controls[i]};
    }
    int received = recvmmsg(port->fd, messages, IO_BUFFERS, MSG_DONTWAIT, NULL);
    for (int i = 0; i < received; i++) {
        const uint8_t *bytes = parts[i].iov_base;
        uint32_t length = messages[i].msg_len;
        uint32_t size = segment_size(&messages[i].msg_hdr);
        if (size == 0 || size >= length)
            size = length;
        if (unlikely(!from_peer(udp, &senders[i]))) {
            port->statistics.rx_stranger += length ? (length + size - 1) / size : 1;
            continue;
        }
        if (size == length) {
            port_receive(port, bytes, length, NULL);
            continue;
        }
        while (length) {
            uint32_t part = length < size ? length : size;
            port_receive(port, bytes, part, NULL);
            bytes += part;
            length -= part;
        }
    }
}

/* ---------------------------------------------------------------- send */

/* The number of frames from `first` on that one message can carry. */
static uint32_t run_length(const struct outbox *box, uint32_t first, bool segments)
{
    uint32_t size = box->lengths[first];
    uint32_t total = size, count = 1;
    while (segments && first + count < box->count && count < MAX_RUN_FRAMES) {
        uint32_t next = box->lengths[first + count];
        if (next > size || total + next > MAX_RUN_BYTES)
            break;
        total += next;
        count++;
        if (next < size)
            break;
    }
    return count;
}

static int send_runs(struct port *port, uint32_t *runs)
{
    struct udp_port *udp = port->io;
    struct outbox *box = &port->outbox;
    struct mmsghdr messages[UDP_MESSAGES];
    struct iovec parts[UDP_MESSAGES];
    union udp_control controls[UDP_MESSAGES];
    uint32_t frame = box->first;
    uint8_t *bytes = box->bytes + box->sent;
    unsigned count = 0;
    while (count < UDP_MESSAGES && frame < box->count) {
        uint32_t run = run_length(box, frame, udp->segments);
        size_t length = 0;
        for (uint32_t i = 0; i < run; i++)
            length += box->lengths[frame + i];
        parts[count] = (struct iovec){bytes, length};
        struct msghdr *message = &messages[count].msg_hdr;
        *message = (struct msghdr){.msg_name = &udp->peer, .msg_namelen = sizeof udp->peer,
                                   .msg_iov = &parts[count], .msg_iovlen = 1};
        if (run > 1) {
            message->msg_control = &controls[count];
            message->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
            struct cmsghdr *c = CMSG_FIRSTHDR(message);
            c->cmsg_level = IPPROTO_UDP;
            c->cmsg_type = UDP_SEGMENT;
            c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
            uint16_t size = (uint16_t)box->lengths[frame];
            memcpy(CMSG_DATA(c), &size, sizeof size);
        }
        runs[count++] = run;
        frame += run;
        bytes += length;
    }
    return sendmmsg(port->fd, messages, count, MSG_DONTWAIT);
}

static void udp_flush(struct port *port)
{
    struct udp_port *udp = port->io;
    struct outbox *box = &port->outbox;
    struct engine_statistics *statistics = &port->statistics;
    if (!udp->has_peer)
        outbox_leave(port, box->count - box->first, &statistics->tx_no_peer);
    while (box->first < box->count) {
        uint32_t runs[UDP_MESSAGES];
        int sent = send_runs(port, runs);
        for (int i = 0; i < sent; i++)
            outbox_leave(port, runs[i], &statistics->tx_packets);
        if (sent > 0 || errno == EINTR)
            continue;
        if (errno == EAGAIN) {
            port_block(port);
            return;
        }
        if (runs[0] > 1 && (errno == EINVAL || errno == EIO || errno == EOPNOTSUPP))
            udp->segments = false;      /* this kernel or device cannot: send one by one from now on */
        else
            outbox_leave(port, runs[0],
                         errno == EMSGSIZE ? &statistics->tx_too_long : &statistics->tx_blocked);
    }
}

/* ---------------------------------------------------------------- life */

static struct sockaddr_in loopback(uint16_t number)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(number),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void udp_close(struct port *port)
{
    struct udp_port *udp = port->io;
    if (port->fd >= 0)
        close(port->fd);
    if (udp && udp->everywhere_fd >= 0)
        close(udp->everywhere_fd);
    free(udp);
}

/* Take a UDP port (0: a free one) at all addresses of this machine.
 *
 * A process with the port at one address (say 127.0.0.2) could send from any other address, by IP_PKTINFO, and so pose
 * as us to our peer. The port is then also bound where it is used; SO_REUSEPORT allows that to this user, until
 * `keep_to_us`.
 */
static int take_everywhere(uint16_t *local)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(*local)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(*local)};
    struct sockaddr *address = (struct sockaddr *)&six;
    socklen_t size = sizeof six;
    int one = 1, none = 0;
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {                       /* a kernel without IPv6: no other process can have the port there either */
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        address = (struct sockaddr *)&four;
        size = sizeof four;
    } else {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &none, sizeof none);  /* it is never read */
    if (fd >= 0 && (bind(fd, address, size) || getsockname(fd, address, &size)
                    || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one))) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    *local = ntohs(address->sa_family == AF_INET6 ? six.sin6_port : four.sin_port);
    return fd;
}

static void keep_to_us(int fd)
{
    int none = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &none, sizeof none);
}

static int open_udp(uint16_t number, uint16_t local, int *everywhere_fd, char *error)
{
    int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(error, "port %u: no UDP socket: %s", number, strerror(errno));
    *everywhere_fd = take_everywhere(&local);
    struct sockaddr_in address = loopback(local);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (*everywhere_fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address)) {
        int reason = errno;
        close(fd);
        if (reason == EADDRINUSE)
            return fail(error, "port %u: UDP 127.0.0.1:%u is in use by another process, there or at another address",
                        number, local);
        return fail(error, "port %u: cannot bind UDP 127.0.0.1:%u: %s", number, local, strerror(reason));
    }
    keep_to_us(fd);
    keep_to_us(*everywhere_fd);
    return fd;
}

/* Take over a socket that is bound already. */
static int adopt_udp(uint16_t number, int fd, char *error)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address, type_size = sizeof(int);
    int type = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_DGRAM
        || getsockname(fd, (struct sockaddr *)&address, &size) || address.sin_family != AF_INET || !address.sin_port)
        return fail(error, "port %u: file descriptor %d is not a UDP socket that is bound", number, fd);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

int engine_add_udp(struct engine *engine, uint16_t number, const struct engine_impairments *rx,
                   const struct engine_impairments *tx, int fd, uint16_t local, uint16_t peer, char *error)
{
    if (!io_buffers_ready(engine))
        return fail(error, "port %u: out of memory", number);
    struct port *port = port_add(engine, number, rx, tx, UDP_OUTBOX_BYTES, error);
    if (!port)
        return -1;
    port->close = udp_close;
    struct udp_port *udp = port->io = calloc(1, sizeof *udp);
    if (!udp) {
        port_remove(port);
        return fail(error, "port %u: out of memory", number);
    }
    udp->everywhere_fd = -1;
    port->fd = fd >= 0 ? adopt_udp(number, fd, error) : open_udp(number, local, &udp->everywhere_fd, error);
    if (port->fd < 0) {
        port_remove(port);
        return -1;
    }
    udp->peer = loopback(peer);
    udp->has_peer = peer != 0;
    set_socket_buffers(port->fd);
    int one = 1;
    setsockopt(port->fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one);
    udp->segments = true;
    port->drops = socket_drops;
    port->receive = udp_receive;
    port->flush = udp_flush;
    return 0;
}

uint16_t engine_udp_port(struct engine *engine, uint16_t number)
{
    struct port *port = number < ENGINE_PORTS ? engine->ports[number] : NULL;
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    if (!port || port->receive != udp_receive || getsockname(port->fd, (struct sockaddr *)&address, &size))
        return 0;
    return ntohs(address.sin_port);
}
