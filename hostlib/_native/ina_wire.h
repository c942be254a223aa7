/* An INA packet on the wire (docs/reference/protocol.md). p4src/include is where these facts come from,
 * hostlib/wire/__init__.py says them
 * in Python; ina_layout.c exports the lists, so that load() refuses what differs and tests/contract compares all three.
 */
#ifndef INA_WIRE_H
#define INA_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Name and bytes of each field of the header, in their order. All are big endian. */
#define INA_HEADER_FIELDS(FIELD) \
    FIELD(version_kind, 1) \
    FIELD(flags, 1) \
    FIELD(job, 2) \
    FIELD(psn, 4) \
    FIELD(bitmap, 4) \
    FIELD(fan_in, 1) \
    FIELD(priority, 1) \
    FIELD(exponent, 1) \
    FIELD(epoch, 1) \
    FIELD(valid, 2) \
    FIELD(lanes, 2) \
    FIELD(tag, 4) \
    FIELD(node, 2) \
    FIELD(target, 2)

#define HEADER_FIELD(name, bytes) uint8_t name[bytes];
struct ina_header {
    INA_HEADER_FIELDS(HEADER_FIELD)
};

#define AT(field) offsetof(struct ina_header, field)

/* INA_BYTES: of the header; FRAME_PREFIX_BYTES: of Ethernet, IPv4 and UDP. VALID_INT32: in raw packets the lanes are
   int32, else float32. TARGET_BUT: not the rank in the other bits takes the sum, but all the others. ECN_*: of the type of
   service, in frames (RFC 3168). FLAGS_OF_ANSWER: both of them, in a contribution of a worker that has the result. */
#define INA_WIRE_CONSTANTS(CONSTANT) \
    CONSTANT(INA_VERSION, 2) \
    CONSTANT(INA_UDP_PORT, 42592) \
    CONSTANT(INA_BYTES, sizeof(struct ina_header)) \
    CONSTANT(FRAME_PREFIX_BYTES, 42) \
    CONSTANT(MAX_FAN_IN, 32) \
    CONSTANT(ROOT_NODE, 0) \
    CONSTANT(KIND_GRADIENT, 1) \
    CONSTANT(KIND_RESULT, 2) \
    CONSTANT(KIND_STATUS, 3) \
    CONSTANT(KIND_PARTIAL, 4) \
    CONSTANT(KIND_REMINDER, 5) \
    CONSTANT(FLAG_RESEND, 0x01) \
    CONSTANT(FLAG_QUERY, 0x02) \
    CONSTANT(FLAG_OVERFLOW, 0x04) \
    CONSTANT(FLAG_DISAGREE, 0x08) \
    CONSTANT(FLAG_COLLISION, 0x10) \
    CONSTANT(FLAG_ECN, 0x20) \
    CONSTANT(FLAG_BYPASS, 0x40) \
    CONSTANT(FLAG_RAW, 0x80) \
    CONSTANT(FLAGS_OF_ANSWER, FLAG_RESEND | FLAG_BYPASS) \
    CONSTANT(VALID_INT32, 0x8000) \
    CONSTANT(TARGET_BUT, 0x8000) \
    CONSTANT(TARGET_ALL, 0xffff) \
    CONSTANT(ECN_MASK, 3) \
    CONSTANT(ECN_CONGESTED, 3)

#define WIRE_VALUE(name, value) name = value,
enum { INA_WIRE_CONSTANTS(WIRE_VALUE) };

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
