/* Functions that all ports with a socket share. */
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "engine_internal.h"

#define SOCKET_BUFFER (32 << 20)    /* requested; the kernel may grant less */

bool io_buffers_ready(struct engine *engine)
{
    for (int i = 0; i < IO_BUFFERS; i++) {
        if (!engine->io_buffers[i])
            engine->io_buffers[i] = malloc(IO_BUFFER_BYTES);
        if (!engine->io_buffers[i])
            return false;
    }
    return true;
}

void set_socket_buffers(int fd)
{
    int size = SOCKET_BUFFER;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size))
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

uint64_t socket_drops(struct port *port)
{
    uint32_t memory[SK_MEMINFO_VARS] = {0};
    socklen_t size = sizeof memory;
    getsockopt(port->fd, SOL_SOCKET, SO_MEMINFO, memory, &size);
    return memory[SK_MEMINFO_DROPS];
}

void port_block(struct port *port)
{
    port->blocked = true;
    port->engine->newly_blocked = true;
}
