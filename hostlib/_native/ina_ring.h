/* Packets through memory that is shared with the switch (shared_ring.h), which is trusted here. */
#ifndef INA_RING_H
#define INA_RING_H

#include "ina_core.h"

/* Have the core write what may be sent now into the ring, as much as fits; `io->full` says if not all did. */
void ina_ring_send(struct ina_core *core, struct ina_io *io, int64_t now);

/* Have the core take in some of what has come. Returns how many packets. */
int64_t ina_ring_take(struct ina_core *core, struct ina_io *io);

/* As ina_wait of ina_socket.h. */
int ina_ring_wait(struct ina_io *io, int control, int64_t until, int64_t now);

/* Whether something has come. */
int ina_ring_readable(const struct ina_io *io);

#endif
