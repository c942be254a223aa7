/* An INA packet on the wire (docs/protocol.md): what p4src/include/headers.p4 and hostlib/wire.py say too. */
#ifndef INA_WIRE_H
#define INA_WIRE_H

#include <stdint.h>

#define INA_HEADER_BYTES 28
#define INA_PREFIX_BYTES 42             /* Ethernet, IPv4, UDP */

enum { VERSION = 2, UDP_PORT = 42592, ROOT_NODE = 0 };

enum { KIND_GRADIENT = 1, KIND_RESULT = 2, KIND_STATUS = 3, KIND_PARTIAL = 4, KIND_REMINDER = 5 };

enum {
    FLAG_RESEND = 0x01, FLAG_QUERY = 0x02, FLAG_OVERFLOW = 0x04, FLAG_DISAGREE = 0x08,
    FLAG_COLLISION = 0x10, FLAG_ECN = 0x20, FLAG_BYPASS = 0x40, FLAG_RAW = 0x80
};

enum { ECN_MASK = 3, ECN_CONGESTED = 3 }; /* of the type of service, in frames (RFC 3168) */
enum { VALID_INT32 = 0x8000 };          /* in raw packets: the lanes are int32, else float32 */

static inline uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static inline uint32_t load32(const uint8_t *p) { return load16(p) << 16 | load16(p + 2); }

static inline void store16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static inline void store32(uint8_t *p, uint32_t value)
{
    store16(p, value >> 16);
    store16(p + 2, value);
}

/* Whether a frame is UDP over plain IPv4, and no fragment. */
static inline int is_udp(const uint8_t *frame)
{
    return load16(frame + 12) == 0x0800 && frame[14] == 0x45 && (load16(frame + 20) & 0x1fff) == 0 && frame[23] == 17;
}

static inline uint32_t udp_source(const uint8_t *frame) { return load16(frame + 34); }
static inline uint32_t udp_destination(const uint8_t *frame) { return load16(frame + 36); }

#endif
