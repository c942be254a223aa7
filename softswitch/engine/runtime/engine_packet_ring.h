/* The receive ring of a packet socket: memory that the kernel puts frames into, so that taking one is no system call.
 *
 * A frame too long for its slot (a superframe, a jumbo frame) is cut there and marked TP_STATUS_COPY, and lies whole
 * in the socket's queue, where such frames have the order of their slots. If it is cut and not marked, the queue had
 * no room, and it is lost.
 */
#ifndef ENGINE_PACKET_RING_H
#define ENGINE_PACKET_RING_H

#include <linux/if_packet.h>
#include <stdbool.h>
#include <stdint.h>

#define PACKET_RING_SLOT_BYTES 2048     /* a frame of MTU 1500 with its headers, and of 1900 */
#define PACKET_RING_SLOTS 4096

struct packet_ring {
    uint8_t *slots;                     /* NULL: there is no ring, and all frames are in the queue */
    uint32_t next;                      /* the oldest slot that has not been given back */
};

/* Before the socket is bound, after PACKET_VNET_HDR. False: this kernel has none, or not the memory. */
bool packet_ring_open(struct packet_ring *, int fd);
void packet_ring_close(struct packet_ring *);

/* The slot `ahead` of the next one, NULL while it is the kernel's; its frame, and what vnet_hdr precedes it. */
struct tpacket2_hdr *packet_ring_slot(const struct packet_ring *, uint32_t ahead);
void packet_ring_give_back(struct packet_ring *, uint32_t slots);

#endif
