/* The receive ring of a packet socket: the kernel writes frames into this memory, so taking one needs no system call.
 *
 * A frame too long for its slot (a superframe, a jumbo frame) is cut there and marked TP_STATUS_COPY; the whole frame
 * is in the socket's queue, in the order of the slots. If a cut frame is not marked, the queue was full and the frame
 * is lost.
 */
#ifndef ENGINE_PACKET_RING_H
#define ENGINE_PACKET_RING_H

#include <linux/if_packet.h>
#include <stdbool.h>
#include <stdint.h>

#define PACKET_RING_SLOT_BYTES 2048     /* a frame of MTU 1500 with its headers, and of 1900 */
#define PACKET_RING_SLOTS 4096

struct packet_ring {
    uint8_t *slots;                     /* NULL: no ring; all frames are in the queue */
    uint32_t next;                      /* the oldest slot not yet returned to the kernel */
};

/* Call it after PACKET_VNET_HDR and before bind. False: the kernel has no rings, or not enough memory. */
bool packet_ring_open(struct packet_ring *, int fd);
void packet_ring_close(struct packet_ring *);

/* The slot `ahead` of the next one, NULL while the kernel owns it; its frame, and the vnet_hdr before it. */
struct tpacket2_hdr *packet_ring_slot(const struct packet_ring *, uint32_t ahead);
void packet_ring_give_back(struct packet_ring *, uint32_t slots);

#endif
