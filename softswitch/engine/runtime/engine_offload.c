/* Segmentation and checksum offload: see engine_offload.h.
 *
 * Sums are over 16-bit words as they lie in memory: one's complement addition does not depend on byte
 * order (RFC 1071), so bytes are swapped only when a sum is compared with a number.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>

#include "engine_offload.h"

#define MAX_HEADERS 256
#define ETHERNET_BYTES 14
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define PROTOCOL_UDP 17
#define PROTOCOL_TCP 6
#define TCP_FIN 0x01
#define TCP_PSH 0x08
#define TCP_CWR 0x80

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void store16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

/* ---------------------------------------------------------------- checksums */

static uint64_t add(uint64_t sum, const uint8_t *bytes, uint32_t length)
{
    while (length >= 4) {
        uint32_t word;
        memcpy(&word, bytes, 4);
        sum += word;
        bytes += 4;
        length -= 4;
    }
    uint8_t rest[4] = {0};
    memcpy(rest, bytes, length);
    uint32_t word;
    memcpy(&word, rest, 4);
    return sum + word;
}

static uint16_t fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static void store_sum(uint8_t *p, uint16_t sum)
{
    memcpy(p, &sum, 2);
}

/* The sum of the pseudo header: addresses, protocol, length. */
static uint64_t pseudo(const uint8_t *addresses, uint32_t address_bytes, uint8_t protocol, uint32_t length)
{
    return add(0, addresses, address_bytes) + htonl(length) + htonl(protocol);
}

static void finish_ipv4(uint8_t *ip, uint32_t header_bytes)
{
    store16(ip + 10, 0);
    store_sum(ip + 10, (uint16_t)~fold(add(0, ip, header_bytes)));
}

/* A checksum of zero means none in UDP, and is the same as 0xffff everywhere else. */
static void finish_transport(uint8_t *checksum, uint64_t sum)
{
    uint16_t result = (uint16_t)~fold(sum);
    store_sum(checksum, result ? result : 0xffff);
}

/* ---------------------------------------------------------------- split */

struct layout {
    uint32_t ip, transport, payload;
    bool ipv6, tcp;
};

static bool find_headers(const struct offload *offload, const uint8_t *frame, uint32_t length,
                         struct layout *at)
{
    uint8_t type = offload->type & (uint8_t)~OFFLOAD_ECN;
    if (type != OFFLOAD_TCP4 && type != OFFLOAD_TCP6 && type != OFFLOAD_UDP)
        return false;
    at->ip = ETHERNET_BYTES;
    while (at->ip + 4 <= length
           && (load16(frame + at->ip - 2) == 0x8100 || load16(frame + at->ip - 2) == 0x88a8))
        at->ip += 4;
    uint16_t ether_type = at->ip <= length ? load16(frame + at->ip - 2) : 0;
    at->ipv6 = ether_type == TYPE_IPV6;
    if (at->ip + (at->ipv6 ? 40u : 20u) > length)
        return false;
    at->tcp = type != OFFLOAD_UDP;
    if (at->ipv6)
        at->transport = offload->flags & OFFLOAD_NEEDS_CHECKSUM ? offload->checksum_start : at->ip + 40;
    else if (ether_type == TYPE_IPV4)
        at->transport = at->ip + (frame[at->ip] & 15u) * 4;
    else
        return false;
    if (at->transport < at->ip + (at->ipv6 ? 40u : 20u) || at->transport + (at->tcp ? 20u : 8u) > length)
        return false;
    at->payload = at->transport + (at->tcp ? (uint32_t)(frame[at->transport + 12] >> 4) * 4 : 8u);
    return at->payload >= at->transport + (at->tcp ? 20u : 8u) && at->payload <= length
           && at->payload <= MAX_HEADERS;
}

/* Change the headers in front of payload number `index`, `part` bytes long, into those of a separate frame. */
static void fix_headers(const struct layout *at, uint8_t *frame, uint32_t part, uint32_t index,
                        uint32_t offset, bool is_last, bool has_checksum)
{
    uint8_t *ip = frame + at->ip, *transport = frame + at->transport;
    uint32_t transport_bytes = at->payload - at->transport + part;
    if (at->ipv6) {
        store16(ip + 4, at->transport - at->ip - 40 + transport_bytes);
    } else {
        store16(ip + 2, at->transport - at->ip + transport_bytes);
        store16(ip + 4, load16(ip + 4) + index);
        finish_ipv4(ip, at->transport - at->ip);
    }
    uint8_t *checksum = transport + (at->tcp ? 16 : 6);
    if (at->tcp) {
        uint32_t sequence;
        memcpy(&sequence, transport + 4, 4);
        sequence = htonl(ntohl(sequence) + offset);
        memcpy(transport + 4, &sequence, 4);
        if (!is_last)
            transport[13] &= (uint8_t)~(TCP_FIN | TCP_PSH);
        if (index)
            transport[13] &= (uint8_t)~TCP_CWR;
    } else {
        store16(transport + 4, transport_bytes);
    }
    if (!has_checksum)
        return;
    store16(checksum, 0);
    uint64_t sum = at->ipv6 ? pseudo(ip + 8, 32, at->tcp ? PROTOCOL_TCP : PROTOCOL_UDP, transport_bytes)
                            : pseudo(ip + 12, 8, at->tcp ? PROTOCOL_TCP : PROTOCOL_UDP, transport_bytes);
    finish_transport(checksum, add(sum, transport, transport_bytes));
}

int offload_split(const struct offload *offload, uint8_t *frame, uint32_t length, offload_sink *sink,
                  void *context)
{
    if (offload->type == OFFLOAD_NONE) {
        if (offload->flags & OFFLOAD_NEEDS_CHECKSUM) {
            uint32_t start = offload->checksum_start, field = start + offload->checksum_offset;
            if (start > length || field + 2 > length)
                return -1;
            finish_transport(frame + field, add(0, frame + start, length - start));
        }
        sink(context, frame, length);
        return 0;
    }
    struct layout at;
    uint32_t size = offload->segment_bytes;
    if (!find_headers(offload, frame, length, &at) || size == 0 || at.payload == length)
        return -1;
    uint8_t headers[MAX_HEADERS];
    memcpy(headers, frame, at.payload);
    bool has_checksum = at.tcp || offload->flags & OFFLOAD_NEEDS_CHECKSUM
                        || load16(headers + at.transport + 6);
    uint32_t total = length - at.payload;
    for (uint32_t offset = 0, index = 0; offset < total; offset += size, index++) {
        uint32_t part = total - offset < size ? total - offset : size;
        uint8_t *start = frame + offset;    /* the headers end where the payload begins */
        memcpy(start, headers, at.payload);
        fix_headers(&at, start, part, index, offset, offset + part == total, has_checksum);
        sink(context, start, at.payload + part);
    }
    return 0;
}

/* ---------------------------------------------------------------- join */

static bool may_join(const uint8_t *frame, uint32_t length)
{
    const uint8_t *ip = frame + ETHERNET_BYTES, *udp = frame + ETHERNET_BYTES + 20;
    if (length <= OFFLOAD_UDP_HEADERS || load16(frame + 12) != TYPE_IPV4 || ip[0] != 0x45
        || ip[9] != PROTOCOL_UDP || (load16(ip + 6) & 0x3fff) || load16(ip + 2) != length - ETHERNET_BYTES
        || load16(udp + 4) != length - ETHERNET_BYTES - 20 || fold(add(0, ip, 20)) != 0xffff)
        return false;
    uint32_t udp_bytes = length - ETHERNET_BYTES - 20;
    uint64_t sum = pseudo(ip + 12, 8, PROTOCOL_UDP, udp_bytes);
    return load16(udp + 6) == 0 || fold(add(sum, udp, udp_bytes)) == 0xffff;
}

/* All except lengths, identification and checksums. */
static bool same_flow(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, ETHERNET_BYTES + 2) == 0 && memcmp(a + 20, b + 20, 4) == 0
           && memcmp(a + 26, b + 26, 12) == 0;
}

uint32_t offload_run(const uint8_t *bytes, const uint32_t *lengths, uint32_t count)
{
    if (count < 2 || lengths[1] > lengths[0] || !may_join(bytes, lengths[0]))
        return 1;
    const uint8_t *next = bytes + lengths[0];
    uint32_t run = 1, total = lengths[0] - ETHERNET_BYTES;
    while (run < count && run < OFFLOAD_MAX_RUN && lengths[run] <= lengths[0]) {
        total += lengths[run] - OFFLOAD_UDP_HEADERS;
        if (lengths[run] <= OFFLOAD_UDP_HEADERS || total > 65535 || !same_flow(bytes, next)
            || !may_join(next, lengths[run]))
            break;
        next += lengths[run++];
        if (lengths[run - 1] < lengths[0])
            break;
    }
    return run;
}

void offload_join(const uint8_t *frame, const uint32_t *lengths, uint32_t frames, struct offload *offload,
                  uint8_t headers[OFFLOAD_UDP_HEADERS])
{
    uint32_t payload = 0;
    for (uint32_t i = 0; i < frames; i++)
        payload += lengths[i] - OFFLOAD_UDP_HEADERS;
    memcpy(headers, frame, OFFLOAD_UDP_HEADERS);
    uint8_t *ip = headers + ETHERNET_BYTES, *udp = ip + 20;
    store16(ip + 2, 28 + payload);
    finish_ipv4(ip, 20);
    store16(udp + 4, 8 + payload);
    store_sum(udp + 6, fold(pseudo(ip + 12, 8, PROTOCOL_UDP, 8 + payload)));
    *offload = (struct offload){.flags = OFFLOAD_NEEDS_CHECKSUM, .type = OFFLOAD_UDP,
                                .header_bytes = OFFLOAD_UDP_HEADERS,
                                .segment_bytes = (uint16_t)(lengths[0] - OFFLOAD_UDP_HEADERS),
                                .checksum_start = ETHERNET_BYTES + 20, .checksum_offset = 6};
}
