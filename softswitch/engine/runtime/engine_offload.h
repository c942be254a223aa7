/* Segmentation and checksum offload for packet sockets: pure functions on bytes. */
#ifndef ENGINE_OFFLOAD_H
#define ENGINE_OFFLOAD_H

#include <stdint.h>

/* struct virtio_net_hdr of <linux/virtio_net.h>, in host byte order */
struct offload {
    uint8_t flags;
    uint8_t type;
    uint16_t header_bytes;
    uint16_t segment_bytes;
    uint16_t checksum_start;
    uint16_t checksum_offset;
};

enum { OFFLOAD_NEEDS_CHECKSUM = 1 };
enum { OFFLOAD_NONE = 0, OFFLOAD_TCP4 = 1, OFFLOAD_TCP6 = 4, OFFLOAD_UDP = 5, OFFLOAD_ECN = 0x80 };

#define OFFLOAD_UDP_HEADERS 42      /* Ethernet, IPv4 without options, UDP */
#define OFFLOAD_MAX_RUN 64

typedef void offload_sink(void *context, const uint8_t *frame, uint32_t length);

/* Split `frame` and pass its frames to `sink`, checksums complete. Destroys the buffer: headers are
   rebuilt in front of each payload in place. Returns -1, without any call, if the frame cannot be split. */
int offload_split(const struct offload *, uint8_t *frame, uint32_t length, offload_sink *sink, void *context);

/* Number of the frames, back to back in `bytes`, that can leave as one UDP superframe: 1 for only the first.
   A frame joins only with valid checksums (or no UDP checksum), because the receiver of a superframe does
   not check. */
uint32_t offload_run(const uint8_t *bytes, const uint32_t *lengths, uint32_t count);

/* The headers of a superframe of `frames` frames (at least 2) that starts with `frame`. */
void offload_join(const uint8_t *frame, const uint32_t *lengths, uint32_t frames, struct offload *,
                  uint8_t headers[OFFLOAD_UDP_HEADERS]);

#endif
