/* The receive ring of a packet socket: see engine_packet_ring.h. TPACKET_V2 of the kernel's packet_mmap; V3 hands
 * over blocks of frames, a lone frame only after a millisecond.
 */
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "engine_packet_ring.h"

#define RING_BYTES ((size_t)PACKET_RING_SLOTS * PACKET_RING_SLOT_BYTES)
#define BLOCK_BYTES 65536               /* contiguous in the kernel's memory; a multiple of pages and of slots */

bool packet_ring_open(struct packet_ring *ring, int fd)
{
    int version = TPACKET_V2, one = 1;
    struct tpacket_req shape = {.tp_block_size = BLOCK_BYTES, .tp_block_nr = RING_BYTES / BLOCK_BYTES,
                                .tp_frame_size = PACKET_RING_SLOT_BYTES, .tp_frame_nr = PACKET_RING_SLOTS};
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version)
        || setsockopt(fd, SOL_PACKET, PACKET_COPY_THRESH, &one, sizeof one)
        || setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &shape, sizeof shape))
        return false;
    void *slots = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slots == MAP_FAILED) {
        shape = (struct tpacket_req){0};
        setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &shape, sizeof shape);
        return false;
    }
    *ring = (struct packet_ring){.slots = slots};
    return true;
}

void packet_ring_close(struct packet_ring *ring)
{
    if (ring->slots)
        munmap(ring->slots, RING_BYTES);
    ring->slots = NULL;
}

static struct tpacket2_hdr *slot_at(const struct packet_ring *ring, uint32_t ahead)
{
    size_t index = (ring->next + ahead) % PACKET_RING_SLOTS;
    return (struct tpacket2_hdr *)(void *)(ring->slots + index * PACKET_RING_SLOT_BYTES);
}

struct tpacket2_hdr *packet_ring_slot(const struct packet_ring *ring, uint32_t ahead)
{
    struct tpacket2_hdr *slot = slot_at(ring, ahead);
    return __atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER ? slot : NULL;
}

void packet_ring_give_back(struct packet_ring *ring, uint32_t slots)
{
    for (uint32_t i = 0; i < slots; i++)
        __atomic_store_n(&slot_at(ring, i)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    ring->next = (ring->next + slots) % PACKET_RING_SLOTS;
}
