/* Window and retransmission core. Every function has its twin in hostlib/core/numpy_kernel.py. */
#include "ina_core.h"

#include <string.h>

enum { KIND_RESULT = 2, KIND_STATUS = 3, VERSION = 1 };
enum { FLAG_RESEND = 0x01, FLAG_QUERY = 0x02, FLAG_OVERFLOW = 0x04, FLAG_DISAGREE = 0x08 };
enum { UDP_PORT = 42592 };

static uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static uint32_t load32(const uint8_t *p) { return load16(p) << 16 | load16(p + 2); }

static void store16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static void store32(uint8_t *p, uint32_t value)
{
    store16(p, value >> 16);
    store16(p + 2, value);
}

static uint32_t chain_of(const struct ina_core *core, int64_t index)
{
    return (uint32_t)((core->base + (uint64_t)index) % core->window);
}

static uint32_t psn_of(const struct ina_core *core, int64_t index)
{
    return (uint32_t)((core->base + (uint64_t)index) % core->psn_limit);
}

size_t ina_core_bytes(void) { return sizeof(struct ina_core); }

/* Queue packet `index` if it is its chain's turn and the exponent of its values is known. */
static void make_ready(struct ina_core *core, int64_t index)
{
    if (index >= core->total)
        return;
    uint32_t chain = chain_of(core, index);
    if (core->index[chain] != index || core->status[chain] != 0)
        return;
    int64_t source = index - core->lookahead;
    if (core->lookahead > 0 && source >= 0 && core->index[chain_of(core, source)] <= source)
        return;
    core->status[chain] = CHAIN_READY;
    core->ready_ring[(core->ready_head + core->ready_count++) % core->window] = chain;
}

void ina_begin(struct ina_core *core, int64_t now)
{
    core->ready_head = core->ready_count = 0;
    core->resend_head = core->resend_count = 0;
    core->completed = core->in_flight = 0;
    core->progress_at = now;
    core->status_at = core->overflow_index = core->nonfinite_index = core->disagree_index = -1;
    memset(core->status, 0, core->window);
    uint32_t chain = chain_of(core, 0);
    for (int64_t i = 0; i < core->window; i++) {
        core->index[chain] = i;
        chain = chain + 1 == core->window ? 0 : chain + 1;
    }
    for (int64_t i = 0; i < core->window; i++)
        make_ready(core, i);
}

static int64_t elements_of(const struct ina_core *core, int64_t data_packet)
{
    int64_t left = core->length - data_packet * core->lanes;
    return left < core->lanes ? left : core->lanes;
}

static void fill(struct ina_core *core, uint8_t *packet, int64_t index, uint32_t flags)
{
    memcpy(packet, core->header, core->prefix + INA_HEADER_BYTES);
    uint8_t *header = packet + core->prefix;
    uint8_t *lanes = header + INA_HEADER_BYTES;
    int64_t data = index - core->lookahead;
    int64_t count = data >= 0 ? elements_of(core, data) : 0;

    header[1] = (uint8_t)flags;
    store32(header + 4, psn_of(core, index));
    store16(header + 16, (uint32_t)count);
    store32(header + 20, core->tag);
    if (core->is_float && index < core->data_packets) {
        const uint8_t *from = core->input + index * core->lanes * 4;
        header[14] = (uint8_t)ina_exponent((const float *)from, elements_of(core, index));
    }
    if (count > 0) {
        const uint8_t *from = core->input + data * core->lanes * 4;
        if (core->is_float)
            ina_quantize((const float *)from, lanes, count, core->exponent[chain_of(core, data)], core->fan_in);
        else
            ina_swap(from, lanes, count);
    }
    memset(lanes + count * 4, 0, (size_t)(core->lanes - count) * 4);
}

int64_t ina_emit(struct ina_core *core, uint8_t *out, int64_t max_packets, int64_t now)
{
    int64_t count = 0;
    while (count < max_packets) {
        uint32_t chain;
        uint32_t flags = 0;
        if (core->resend_count > 0) {
            chain = core->resend_ring[core->resend_head];
            core->resend_head = (core->resend_head + 1) % core->window;
            core->resend_count--;
            if (!(core->status[chain] & CHAIN_QUEUED))
                continue;               /* its result came in between */
            flags = FLAG_RESEND | (core->status[chain] & CHAIN_QUERY ? FLAG_QUERY : 0);
            core->status[chain] &= (uint8_t)~(CHAIN_QUEUED | CHAIN_QUERY);
            core->status[chain] |= CHAIN_RESENT;
            core->counters[COUNT_RESENT]++;
        } else if (core->ready_count > 0 && core->in_flight < core->limit) {
            chain = core->ready_ring[core->ready_head];
            core->ready_head = (core->ready_head + 1) % core->window;
            core->ready_count--;
            core->status[chain] = CHAIN_FLIGHT;
            core->in_flight++;
            core->counters[COUNT_SENT]++;
        } else {
            break;
        }
        fill(core, out + count * core->packet_bytes, core->index[chain], flags);
        core->sent_at[chain] = now;
        count++;
    }
    return count;
}

/* Whether a frame is UDP over plain IPv4 from the INA port: nothing else is for us. */
static int is_ours(const uint8_t *frame)
{
    return load16(frame + 12) == 0x0800 && frame[14] == 0x45 && (load16(frame + 20) & 0x1fff) == 0
           && frame[23] == 17 && load16(frame + 34) == UDP_PORT;
}

static void note_first(int64_t *first, int64_t index)
{
    if (*first < 0 || index < *first)
        *first = index;
}

/* Take in a result that has passed every check. Returns its round trip time, INA_NEVER if that is ambiguous. */
static int64_t take_result(struct ina_core *core, const uint8_t *header, uint32_t chain, int64_t now)
{
    const uint8_t *lanes = header + INA_HEADER_BYTES;
    int64_t index = core->index[chain];
    int64_t data = index - core->lookahead;
    int64_t sent_at = core->sent_at[chain];
    int resent = core->status[chain] & CHAIN_RESENT;
    int64_t sample = resent ? INA_NEVER : now - sent_at;

    /* whether it came for the latest sending: not if that was just now, or if we were counted before it */
    int prompted = !resent || (now - sent_at >= core->srtt / 2 && !(core->status[chain] & CHAIN_COUNTED));
    if (prompted && sent_at > core->newest_sent)
        core->newest_sent = sent_at;
    if (header[1] & FLAG_OVERFLOW)
        note_first(&core->overflow_index, index);
    if (data >= 0) {
        int64_t count = elements_of(core, data);
        uint8_t *to = core->output + data * core->lanes * 4;
        if (core->is_float)
            ina_dequantize(lanes, (float *)to, count, core->exponent[chain_of(core, data)], core->fan_in,
                           (int)core->average);
        else
            ina_swap(lanes, to, count);
    }
    if (core->is_float && index < core->data_packets) {
        core->exponent[chain] = header[14];
        if (header[14] == 255)
            note_first(&core->nonfinite_index, index);
    }
    core->status[chain] = 0;
    core->index[chain] = index + core->window;
    core->in_flight--;
    core->completed++;
    if (core->srtt > 0 || !resent)      /* before the first sample only doubling finds out how long a trip takes */
        core->backoff = 0;
    core->progress_at = now;
    core->counters[COUNT_RESULTS]++;
    if (core->lookahead > 0 && core->lookahead < core->window)
        make_ready(core, index + core->lookahead);
    make_ready(core, index + core->window);
    return sample;
}

/* Check one packet and take it in. Returns a round trip time, INA_NEVER if it gives none. */
static int64_t take_packet(struct ina_core *core, const uint8_t *packet, int64_t bytes, int64_t now)
{
    const uint8_t *header = packet + core->prefix;
    uint64_t *counters = core->counters;

    if (bytes < core->prefix + INA_HEADER_BYTES) {
        counters[COUNT_BAD_LENGTH]++;
        return INA_NEVER;
    }
    if (core->prefix && !is_ours(packet)) {
        counters[COUNT_FOREIGN]++;
        return INA_NEVER;
    }
    if (header[0] >> 4 != VERSION) {
        counters[COUNT_BAD_VERSION]++;
        return INA_NEVER;
    }
    uint32_t kind = header[0] & 0x0f;
    if (kind != KIND_RESULT && kind != KIND_STATUS) {
        counters[COUNT_BAD_KIND]++;
        return INA_NEVER;
    }
    if (load16(header + 2) != core->job) {
        counters[COUNT_WRONG_JOB]++;
        return INA_NEVER;
    }
    uint32_t lanes = kind == KIND_RESULT ? core->lanes : 0;
    if (load16(header + 18) != lanes) {
        counters[COUNT_BAD_LANES]++;
        return INA_NEVER;
    }
    if (bytes < core->prefix + INA_HEADER_BYTES + 4 * (int64_t)lanes) {
        counters[COUNT_BAD_LENGTH]++;
        return INA_NEVER;
    }
    uint32_t psn = load32(header + 4);
    uint32_t chain = psn % core->window;
    if (!(core->status[chain] & CHAIN_FLIGHT) || psn_of(core, core->index[chain]) != psn) {
        counters[COUNT_STALE]++;
        return INA_NEVER;
    }
    if (header[1] & FLAG_DISAGREE) {
        note_first(&core->disagree_index, core->index[chain]);
        return INA_NEVER;
    }
    if (load32(header + 20) != core->tag) {
        counters[COUNT_WRONG_TAG]++;
        return INA_NEVER;
    }
    uint32_t bitmap = load32(header + 8);
    if (kind == KIND_STATUS) {
        core->status_bitmap = bitmap;
        core->status_at = now;
        if (bitmap & core->own_bitmap)
            core->status[chain] |= CHAIN_COUNTED;
        counters[COUNT_STATUSES]++;
        return INA_NEVER;
    }
    if (bitmap != core->full_bitmap) {
        counters[COUNT_BAD_BITMAP]++;
        return INA_NEVER;
    }
    return take_result(core, header, chain, now);
}

/* Follow the round trip time, quicker down than up: a result that waited for the lost packet of another rank
   says nothing of the network, so no single one may count for much. */
static void measure(struct ina_core *core, int64_t sample)
{
    sample = sample < 2 * core->rto ? sample : 2 * core->rto;
    if (core->srtt == 0)
        core->srtt = sample > 0 ? sample : 1;
    else if (sample < core->srtt)
        core->srtt -= (core->srtt - sample) / 4;
    else
        core->srtt += (sample - core->srtt) / 16;
    int64_t margin = core->srtt / 2 > core->rto_margin ? core->srtt / 2 : core->rto_margin;
    int64_t rto = core->srtt + margin;
    core->rto = rto < core->rto_max ? rto : core->rto_max;
}

/* Queue again what was sent a round trip before something whose result is here already (as RACK does, RFC 8985).
   Less would be too little: after a loss, ranks send in different orders. A few more than
   results came in, so that a wrong guess cannot flood the network. */
static void resend_overtaken(struct ina_core *core, int64_t most)
{
    int64_t before = core->newest_sent - core->srtt;
    for (uint32_t chain = 0; chain < core->window && most > 0; chain++) {
        if ((core->status[chain] & (CHAIN_FLIGHT | CHAIN_QUEUED)) == CHAIN_FLIGHT && core->sent_at[chain] < before) {
            core->status[chain] |= CHAIN_QUEUED;
            core->resend_ring[(core->resend_head + core->resend_count++) % core->window] = chain;
            most--;
        }
    }
}

void ina_absorb(struct ina_core *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now)
{
    int64_t newest_sent = core->newest_sent;
    int64_t completed = core->completed;
    int64_t quickest = INA_NEVER;       /* one sample per batch: its packets shared one trip */
    for (int64_t at = 0; at < bytes; at += segment) {
        int64_t size = bytes - at < segment ? bytes - at : segment;
        int64_t sample = take_packet(core, data + at, size, now);
        quickest = sample < quickest ? sample : quickest;
    }
    if (quickest != INA_NEVER)
        measure(core, quickest);
    if (core->newest_sent > newest_sent)
        resend_overtaken(core, 8 + 2 * (core->completed - completed));
}

int64_t ina_next_timeout(const struct ina_core *core)
{
    int64_t oldest = INA_NEVER;
    for (uint32_t chain = 0; chain < core->window; chain++) {
        int waits = (core->status[chain] & (CHAIN_FLIGHT | CHAIN_QUEUED)) == CHAIN_FLIGHT;
        int64_t sent_at = waits ? core->sent_at[chain] : INA_NEVER;
        oldest = sent_at < oldest ? sent_at : oldest;
    }
    if (oldest == INA_NEVER)
        return INA_NEVER;
    int64_t rto = core->rto << (core->backoff < 20 ? core->backoff : 20);
    int64_t from = oldest > core->timeout_at ? oldest : core->timeout_at;
    return from + (rto < core->rto_max ? rto : core->rto_max);
}
