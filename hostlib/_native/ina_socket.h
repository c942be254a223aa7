/* A connected UDP socket, read and written in batches. */
#ifndef INA_SOCKET_H
#define INA_SOCKET_H

#include "ina_core.h"

int64_t ina_now_ns(void);               /* the clock of time.monotonic_ns */

/* Hand what is pending in the send buffer to the socket. Returns 0 if the socket is full. A packet that the network
   refuses counts as lost: whoever needs it asks again. */
int ina_flush(struct ina_io *io, uint32_t packet_bytes);

/* Receive once what the peer has sent. Returns the bytes, 0 if there is nothing; `segment`: the length of each packet but the last. */
int64_t ina_receive(struct ina_io *io, int64_t *segment);

/* Wait for the socket, or for `control` (a file descriptor, -1: none) to be readable.
   Returns 0 to go on, 1 if a signal came, 2 if `control` is readable, -1 on failure. */
int ina_wait(struct ina_io *io, int control, int64_t until, int64_t now);

#endif
