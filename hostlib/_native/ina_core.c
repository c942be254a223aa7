/* Window and retransmission core. tests/twins/kernel.py does the same in NumPy, to compare with. */
#include "ina_core.h"
#include "ina_wire.h"

#include <string.h>

enum { NONFINITE = 255, PROMPT_TRIPS = 8, MOST_LANES = 256, FETCHED_AHEAD = 4, CACHE_LINE = 64 };
enum { FLAGS_OF_LOSS = FLAG_ECN | FLAG_COLLISION };

uint32_t ina_chain_of(const struct ina_core *core, int64_t index)
{
    return (uint32_t)((core->base + (uint64_t)index) % core->window);
}

static uint32_t psn_of(const struct ina_core *core, int64_t index)
{
    uint64_t psn = core->base + (uint64_t)index;
    return (uint32_t)(psn < core->psn_limit ? psn : psn % core->psn_limit);
}

/* Twice the window: the values of packet i travel in packet i + lookahead, and packets may be a window ahead of that. */
static uint8_t *exponent_of(const struct ina_core *core, int64_t data)
{
    return &core->exponent[data % (2 * (int64_t)core->window)];
}

/* By which the values of a data packet are scaled. */
static uint32_t scale_of(const struct ina_core *core, int64_t data)
{
    return core->foreseen ? core->foreseen[data] : *exponent_of(core, data);
}

/* The data packet that packet `index` announces. It carries that one, too, unless exponents are sent ahead. */
static int64_t packet_of(const struct ina_core *core, int64_t index)
{
    return core->picked ? core->picked[index] : index;
}

/* The data packet whose values packet `index` carries; below 0: none. */
static int64_t data_of(const struct ina_core *core, int64_t index)
{
    return core->lookahead > 0 ? index - core->lookahead : packet_of(core, index);
}

/* Queue packet `index`, of this chain, if it is its turn and the exponent of its values is known. */
static void make_ready(struct ina_core *core, int64_t index, uint32_t chain)
{
    if (index >= core->total)
        return;
    if (core->index[chain] != index || core->status[chain] != 0)
        return;
    if (core->fallback && index >= core->oldest + core->window)
        return;
    int64_t source = index - core->lookahead;
    uint32_t ahead = (uint32_t)core->lookahead;     /* a window at most */
    if (ahead > 0 && source >= 0 && core->index[chain >= ahead ? chain - ahead : chain + core->window - ahead] <= source)
        return;
    core->status[chain] = CHAIN_READY;
    core->ready_ring[(core->ready_head + core->ready_count++) % core->window] = chain;
}

void ina_begin(struct ina_core *core, int64_t now)
{
    core->ready_head = core->ready_count = 0;
    core->resend_head = core->resend_count = 0;
    core->completed = core->in_flight = core->oldest = core->frontier = core->settled = 0;
    core->progress_at = core->first_at = core->sent_since = now;
    core->overflow_index = core->nonfinite_index = core->disagree_index = -1;
    core->misfits = 0;
    memset(core->status, 0, core->window * sizeof *core->status);
    memset(core->marks, 0, core->window * sizeof *core->marks);
    for (uint32_t i = 0; i < core->nodes; i++)
        core->node_heard_at[i] = -1;
    uint32_t chain = ina_chain_of(core, 0);
    for (int64_t i = 0; i < core->window; i++) {
        core->index[chain] = i;
        chain = chain + 1 == core->window ? 0 : chain + 1;
    }
    for (int64_t i = 0; i < core->window && i < core->total; i++)
        make_ready(core, i, ina_chain_of(core, i));
}

/* Where the values of a data packet are: `count` elements from `at` on of the shard of rank `owner`. */
struct place {
    int64_t shard, at, count;
    uint32_t owner;
};

static struct place place_of(const struct ina_core *core, int64_t data)
{
    int64_t shard = 0, number = data, most = (int64_t)core->lanes * core->per_lane;
    if (core->shards > 1) {
        int64_t most_turn = core->turn, round = data / (most_turn * core->shards);
        int64_t left = core->data_packets / core->shards - most_turn * round;
        int64_t turn = left < most_turn ? left : most_turn, in_round = data - round * most_turn * core->shards;
        shard = in_round / turn;
        number = round * most_turn + in_round % turn;
    }
    int64_t at = number * most, count = core->length - at;
    return (struct place){shard, at, count < most ? count : most, core->shards > 1 ? (uint32_t)shard : core->target};
}

/* In a gather the input is this rank's shard alone; in a scatter the output is. */
static uint8_t *input_at(const struct ina_core *core, const struct place *place)
{
    return core->input + 4 * (place->at + (core->pattern == PATTERN_GATHER ? 0 : place->shard * core->stride));
}

static uint8_t *output_at(const struct ina_core *core, const struct place *place)
{
    return core->output + 4 * (place->at + (core->pattern == PATTERN_SCATTER ? 0 : place->shard * core->stride));
}

/* Whether the owner adds its own values to the others' sum by itself. Not for int32: all ranks must see if the
   sum leaves the range. */
static int adds_own(const struct ina_core *core, const struct place *place)
{
    return core->pattern == PATTERN_SCATTER && core->is_float && core->ranks > 1 && place->owner == core->rank;
}

/* Whether our contribution to a packet has lanes. */
static int gives(const struct ina_core *core, int64_t index, uint32_t flags)
{
    int64_t data = data_of(core, index);
    if (core->pattern == PATTERN_SUM)
        return data >= 0 || !core->bare;
    if (data < 0)
        return 0;
    struct place place = place_of(core, data);
    if (core->pattern == PATTERN_GATHER)
        return place.owner == core->rank;
    return flags & FLAG_RAW || !adds_own(core, &place);
}

/* Whether the result of a packet must have lanes for this rank. */
static int takes(const struct ina_core *core, int64_t index)
{
    int64_t data = data_of(core, index);
    if (data < 0 && (core->bare || core->pattern != PATTERN_SUM))
        return 0;
    if (core->pattern == PATTERN_SUM)
        return core->target == TARGET_ALL || core->target == core->rank;
    return (place_of(core, data).owner == core->rank) == (core->pattern == PATTERN_SCATTER);
}

static uint32_t target_of(const struct ina_core *core, const struct place *place)
{
    if (core->pattern == PATTERN_SUM)
        return core->target;
    return core->pattern == PATTERN_GATHER ? TARGET_BUT | place->owner : place->owner;
}

static uint32_t bytes_of(const struct ina_core *core, int has_lanes)
{
    return core->prefix + INA_BYTES + (has_lanes ? 4 * core->lanes : 0);
}

/* Write our values of a data packet as lanes. Returns 0 if some do not fit the fixed scale; sets the exponent of the values
   if they are scaled by a foreseen one. */
static int encode(const struct ina_core *core, const struct place *place, int64_t data, uint32_t flags, uint8_t *lanes,
                  uint8_t *exponent)
{
    const uint8_t *from = input_at(core, place);
    int64_t used = place->count < core->lanes ? place->count : core->lanes;
    memset(lanes + used * 4, 0, (size_t)(core->lanes - used) * 4);
    if (place->count == 0)
        return 1;
    if (core->per_lane > 1)
        ina_pack((const float *)from, lanes, place->count, core->lanes, scale_of(core, data), core->ranks,
                 core->per_lane);
    else if (!core->is_float || flags & FLAG_RAW)
        ina_swap(from, lanes, place->count);
    else if (!core->fixed) {
        uint32_t found = ina_quantize((const float *)from, lanes, place->count, scale_of(core, data), core->ranks);
        if (core->foreseen)
            *exponent = (uint8_t)found;
    } else
        return ina_quantize_fixed((const float *)from, lanes, place->count, core->scale_bits, core->ranks);
    return 1;
}

/* Prefetch the values of a packet that is sent soon: packets are so short, and those of a shard so few in
   a row, that the processor does not prefetch by itself. */
static void fetch_ahead(const struct ina_core *core, int64_t index)
{
    if (index + FETCHED_AHEAD >= core->data_packets)
        return;
    struct place later = place_of(core, packet_of(core, index + FETCHED_AHEAD));
    const uint8_t *values = input_at(core, &later);
    for (int64_t byte = 0; byte < 4 * later.count; byte += CACHE_LINE)
        __builtin_prefetch(values + byte);
}

/* Write our contribution to a packet. Returns its length. */
static uint32_t fill(const struct ina_core *core, uint8_t *packet, int64_t index, uint32_t flags)
{
    uint8_t unsent[4 * MOST_LANES];
    int has_lanes = gives(core, index, flags);
    memcpy(packet, has_lanes ? core->header : core->bare_header, core->prefix + INA_BYTES);
    uint8_t *header = packet + core->prefix;
    int64_t data = data_of(core, index);
    struct place place = data >= 0 ? place_of(core, data) : (struct place){.owner = core->target};
    int64_t used = place.count < core->lanes ? place.count : core->lanes;

    store32(header + AT(psn), psn_of(core, index));
    store16(header + AT(valid), (uint32_t)used | (flags & FLAG_RAW && !core->is_float ? VALID_INT32 : 0));
    store32(header + AT(tag), core->tag);
    store16(header + AT(target), target_of(core, &place));
    if (core->salted)
        header[AT(priority)] = core->salts[ina_chain_of(core, index)];
    header[AT(exponent)] = (uint8_t)(index < core->change_at ? core->waits : core->waits_next);
    if (core->is_float && index < core->data_packets) {
        struct place announced = place_of(core, packet_of(core, index));
        fetch_ahead(core, index);
        uint8_t exponent = NONFINITE;   /* foreseen: the same pass finds and applies exponents, below */
        if (!core->foreseen || flags & FLAG_RAW)
            exponent = ina_exponent((const float *)input_at(core, &announced), announced.count);
        if (!core->fixed || exponent == NONFINITE)
            header[AT(exponent)] = exponent;
    }
    if (has_lanes || (core->fixed && core->is_float && core->pattern == PATTERN_SCATTER))  /* all ranks learn of values that do not fit */
        flags |= encode(core, &place, data, flags, has_lanes ? header + INA_BYTES : unsent, header + AT(exponent))
                     ? 0
                     : FLAG_OVERFLOW;
    header[AT(flags)] = (uint8_t)flags;
    return bytes_of(core, has_lanes);
}

static uint8_t *answer_of(const struct ina_core *core, uint32_t chain)
{
    return core->answers + (size_t)chain * core->packet_bytes;
}

void ina_queue_resend(struct ina_core *core, uint32_t chain, uint32_t flags)
{
    core->status[chain] |= (uint16_t)(CHAIN_QUEUED | flags);
    core->resend_ring[(core->resend_head + core->resend_count++) % core->window] = chain;
}

/* Let the oldest packet without a result leave next, if it is ready. Ranks do not all get results in the same order: if
   none may send more, and each has sent others, they would wait for each other for good. */
static int prefer_oldest(struct ina_core *core)
{
    while (core->index[ina_chain_of(core, core->oldest)] > core->oldest)
        core->oldest++;
    uint32_t chain = ina_chain_of(core, core->oldest);
    if (core->index[chain] != core->oldest || core->status[chain] != CHAIN_READY)
        return 0;
    uint32_t previous = chain;
    for (uint32_t at = core->ready_head;; at = (at + 1) % core->window) {
        uint32_t moved = core->ready_ring[at];
        core->ready_ring[at] = previous;
        if (moved == chain)
            return 1;
        previous = moved;
    }
}

/* Flags of a packet that is sent for the first time: past the slots, together with their partial sums, if the
   fallback server waits for it already; also past them if it must not claim a slot. */
static uint32_t way_of(struct ina_core *core, uint32_t chain)
{
    int64_t index = core->index[chain];
    if (core->wanted[chain] >= 0 && core->wanted[chain] == (int64_t)psn_of(core, index)) {
        core->wanted[chain] = -1;
        return FLAG_RESEND;
    }
    if (chain % core->most < (index < core->change_at ? core->claims : core->claims_next))
        return 0;
    core->counters[COUNT_BYPASSED]++;
    return FLAG_BYPASS;
}

/* Whether an older packet was asked for than the one whose answer a chain keeps, and that is no result: then we say that
   it is complete, which the fallback server could not tell from our contribution. */
static int only_tells(const struct ina_core *core, uint32_t chain)
{
    uint32_t kind = answer_of(core, chain)[core->prefix + AT(version_kind)] & 0x0f;
    return kind == KIND_GRADIENT && !(core->kept[chain] & KEPT_ASKED);
}

/* Write a result without lanes, of the packet whose answer a chain keeps. */
static void tell_complete(const struct ina_core *core, uint8_t *packet, uint32_t chain)
{
    const uint8_t *kept = answer_of(core, chain) + core->prefix;
    uint8_t *header = packet + core->prefix;
    memcpy(packet, core->bare_header, core->prefix + INA_BYTES);
    memcpy(header + AT(psn), kept + AT(psn), 4);
    memcpy(header + AT(tag), kept + AT(tag), 4);
    memcpy(header + AT(target), kept + AT(target), 2);
    header[AT(version_kind)] = INA_VERSION << 4 | KIND_RESULT;
    header[AT(flags)] = FLAG_RESEND;
    store16(header + AT(node), ROOT_NODE);
    store32(header + AT(bitmap), core->result_bitmap);
}

enum queue { NO_QUEUE, RESENDS, ANSWERS, READY };

/* From which queue the next packet comes, and its length. */
static enum queue next_queue(struct ina_core *core, uint32_t *bytes)
{
    uint32_t chain;
    while (core->resend_count > 0) {
        chain = core->resend_ring[core->resend_head];
        if (core->status[chain] & CHAIN_QUEUED) {
            uint32_t flags = core->status[chain] & CHAIN_RAW ? FLAG_RAW : 0;
            *bytes = bytes_of(core, gives(core, core->index[chain], flags));
            return RESENDS;
        }
        core->resend_head = (core->resend_head + 1) % core->window; /* its result came in between */
        core->resend_count--;
    }
    if (core->answer_count > 0) {
        chain = core->answer_ring[core->answer_head];
        *bytes = bytes_of(core, load16(answer_of(core, chain) + core->prefix + AT(lanes)) > 0 && !only_tells(core, chain));
        return ANSWERS;
    }
    if (core->ready_count > 0 && (core->in_flight < core->limit || prefer_oldest(core))) {
        *bytes = bytes_of(core, gives(core, core->index[core->ready_ring[core->ready_head]], 0));
        return READY;
    }
    return NO_QUEUE;
}

int64_t ina_emit(struct ina_core *core, uint8_t *out, int64_t max_packets, int64_t stride, int64_t now)
{
    int64_t count = 0;
    while (count < max_packets) {
        uint32_t chain, bytes = 0;
        uint32_t flags = 0;
        enum queue queue = next_queue(core, &bytes);
        if (queue == NO_QUEUE || (count > 0 && bytes != core->emitted_bytes))
            break;
        core->emitted_bytes = bytes;
        uint8_t *packet = out + count * (stride > 0 ? stride : bytes);
        if (queue == RESENDS) {
            chain = core->resend_ring[core->resend_head];
            core->resend_head = (core->resend_head + 1) % core->window;
            core->resend_count--;
            flags = FLAG_RESEND | (core->status[chain] & CHAIN_QUERY ? FLAG_QUERY : 0)
                    | (core->status[chain] & CHAIN_RAW ? FLAG_RAW : 0)
                    | (core->status[chain] & CHAIN_LOST ? FLAG_ECN : 0);
            if (core->tells_losses && !(flags & FLAG_RAW))  /* a switch that has our contribution ignores it */
                flags |= FLAGS_OF_LOSS;
            uint32_t asked = flags & FLAG_QUERY ? CHAIN_ASKED : 0;
            if (core->status[chain] & CHAIN_PROBE)
                asked = (core->status[chain] & CHAIN_ASKED) | CHAIN_PROBED;
            core->status[chain] &= (uint16_t)~(CHAIN_QUEUED | CHAIN_QUERY | CHAIN_ASKED | CHAIN_LOST | CHAIN_PROBE);
            core->status[chain] |= (uint16_t)(CHAIN_RESENT | asked);
            core->counters[COUNT_RESENT]++;
        } else if (queue == ANSWERS) {
            chain = core->answer_ring[core->answer_head];
            core->answer_head = (core->answer_head + 1) % core->window;
            core->answer_count--;
            if (only_tells(core, chain))
                tell_complete(core, packet, chain);
            else
                memcpy(packet, answer_of(core, chain), bytes);
            core->kept[chain] = KEPT_THERE;
            core->counters[COUNT_ANSWERS]++;
            count++;
            continue;
        } else {
            chain = core->ready_ring[core->ready_head];
            core->ready_head = (core->ready_head + 1) % core->window;
            core->ready_count--;
            core->status[chain] = CHAIN_FLIGHT;
            core->in_flight++;
            if (core->index[chain] >= core->frontier)
                core->frontier = core->index[chain] + 1;
            core->counters[COUNT_SENT]++;
            flags = core->fallback ? way_of(core, chain) : 0;
            if (core->echo > 0) {
                core->echo--;
                flags |= core->tells_losses ? FLAGS_OF_LOSS : FLAG_ECN;
            }
        }
        fill(core, packet, core->index[chain], flags);
        core->sent_at[chain] = now;
        count++;
    }
    return count;
}

static void note_first(int64_t *first, int64_t index)
{
    if (*first < 0 || index < *first)
        *first = index;
}

/* Count the results that are in, in the order of their PSNs, until there are as many as make a round. */
void ina_settle(struct ina_core *core)
{
    while (core->round_results < core->round_target && core->settled < core->total) {
        uint32_t chain = ina_chain_of(core, core->settled);
        if (core->index[chain] <= core->settled)
            return;
        uint32_t marks = core->marks[chain];
        core->marks[chain] = 0;
        core->settled++;
        core->round_results++;
        core->round_marked += (marks & MARK_ECN) != 0;
        core->round_collided += (marks & MARK_COLLISION) != 0;
        core->round_lost += (marks & (MARK_ECN | MARK_COLLISION)) == (MARK_ECN | MARK_COLLISION);
        core->round_late += (marks & MARK_LATE) != 0;
        if (marks & MARK_WAITS)
            core->round_waits = marks >> 8;
    }
}

/* Store the marks of a result until its round counts it. */
static void note_marks(struct ina_core *core, const uint8_t *header, uint32_t chain, int64_t sample)
{
    uint32_t marks = header[AT(flags)] & FLAG_ECN ? MARK_ECN : 0;
    if (header[AT(flags)] & FLAG_COLLISION) {
        marks |= MARK_COLLISION;
    } else {
        if (sample != INA_NEVER && (core->min_rtt == 0 || sample < core->min_rtt))
            core->min_rtt = sample > 0 ? sample : 1;
        marks |= sample == INA_NEVER || sample > PROMPT_TRIPS * core->min_rtt ? MARK_LATE : 0;
    }
    int announces = core->is_float && core->index[chain] < core->data_packets;
    if (!announces || (core->fixed && header[AT(exponent)] != NONFINITE))
        marks |= MARK_WAITS | (uint32_t)header[AT(exponent)] << 8;
    core->marks[chain] = (uint16_t)((core->marks[chain] & 0xff) | marks);  /* without a fallback server chains run ahead */
}

/* Keep what a reminder of this packet asks for: the result, in a frame of ours; or, if the values went elsewhere, our own
   contribution. Of a RAW sum that must be RAW; so may be any of int32, which other ranks might have to
   repair whose sums were added in another order. Its flags say that we have the result: it begins no sum anew. */
static void keep_answer(struct ina_core *core, const uint8_t *result, uint32_t chain, int64_t index)
{
    uint8_t *packet = answer_of(core, chain);
    core->kept[chain] |= KEPT_THERE;
    if (load16(result + AT(lanes)) == 0) {
        int raw = (result[AT(flags)] & FLAG_RAW || core->status[chain] & CHAIN_RAW || !core->is_float)
                  && core->pattern != PATTERN_GATHER;
        fill(core, packet, index, FLAGS_OF_ANSWER | (raw ? FLAG_RAW : 0));
        return;
    }
    uint8_t *header = packet + core->prefix;
    memcpy(packet, core->header, core->prefix);
    memcpy(header, result, INA_BYTES + 4 * (size_t)core->lanes);
    uint8_t kept_flags = FLAG_OVERFLOW | FLAG_RAW | FLAG_ECN | FLAG_COLLISION;
    header[AT(flags)] = (uint8_t)((result[AT(flags)] & kept_flags) | FLAG_RESEND);
}

/* Whether the values of a result are usable: the exponent is as foreseen, or stands for zeros or NaN. */
static int fits(const struct ina_core *core, const uint8_t *header, int64_t data)
{
    uint32_t found = header[AT(exponent)], foreseen;
    if (!core->foreseen || found == 0 || found == NONFINITE || header[AT(flags)] & FLAG_RAW)
        return 1;
    foreseen = core->foreseen[data];
    return found <= foreseen && foreseen <= found + core->spare;
}

/* Write the values that a result brought. */
static void take_values(const struct ina_core *core, const uint8_t *header, int64_t data)
{
    uint8_t whole[4 * MOST_LANES], unused;
    int scale = core->foreseen && header[AT(exponent)] == NONFINITE ? NONFINITE : (int)scale_of(core, data);
    const uint8_t *lanes = header + INA_BYTES;
    struct place place = place_of(core, data);
    int64_t count = place.count;
    uint8_t *to = output_at(core, &place);
    if (adds_own(core, &place) && !(header[AT(flags)] & FLAG_RAW)) {
        encode(core, &place, data, 0, whole, &unused);
        for (size_t lane = 0; lane < core->lanes; lane++)
            store32(whole + 4 * lane, load32(whole + 4 * lane) + load32(lanes + 4 * lane));
        lanes = whole;
    }
    if (core->per_lane > 1)
        ina_unpack(lanes, (float *)to, count, core->lanes, scale, core->ranks, core->per_lane, (int)core->average);
    else if (!core->is_float)
        ina_swap(lanes, to, count);
    else if (header[AT(flags)] & FLAG_RAW)
        ina_take_raw(lanes, (float *)to, count, core->ranks, (int)core->average);
    else if (!core->fixed)
        ina_dequantize(lanes, (float *)to, count, scale, core->ranks, (int)core->average);
    else if (header[AT(exponent)] == NONFINITE)   /* an exponent that is only read for this */
        ina_dequantize(lanes, (float *)to, count, NONFINITE, core->ranks, 0);
    else
        ina_dequantize_fixed(lanes, (float *)to, count, core->scale_bits, core->ranks, (int)core->average);
}

/* Take in a result that has passed every check. Returns its round trip time, INA_NEVER if that is ambiguous. */
static int64_t take_result(struct ina_core *core, const uint8_t *header, uint32_t chain, int64_t now)
{
    int64_t index = core->index[chain];
    int64_t data = data_of(core, index);
    int64_t sent_at = core->sent_at[chain];
    uint32_t flags = header[AT(flags)];
    int resent = core->status[chain] & CHAIN_RESENT;
    int counted = core->status[chain] & CHAIN_COUNTED;
    int64_t sample = resent ? INA_NEVER : now - sent_at;

    /* whether it came for the latest sending: not if that was just now or early, if we were counted before it, or if it
       took the way by the fallback server */
    int detour = flags & (FLAG_COLLISION | FLAG_BYPASS);
    int probed = core->status[chain] & CHAIN_PROBED;
    int prompted = !resent || (now - sent_at >= core->srtt / 2 && !counted && !detour && !probed);
    if (prompted && sent_at > core->newest_sent)
        core->newest_sent = sent_at;
    if (core->fallback) {
        /* it was under way when we sent again: the fallback server takes longer than the switch */
        if (!prompted && !counted && !probed && core->tolerance < 2 * core->srtt)
            core->tolerance += core->srtt / 8;
        keep_answer(core, header, chain, index);
    }
    int fit = data < 0 || fits(core, header, data);
    core->misfits += !fit;
    if (fit && data >= 0 && takes(core, index))
        take_values(core, header, data);
    if (data >= 0 && core->feedback) {
        struct place place = place_of(core, data);
        ina_leave_rest((float *)input_at(core, &place), place.count, scale_of(core, data), core->ranks,
                       core->per_lane);
    }
    int announced = core->is_float && index < core->data_packets;
    int nonfinite = announced && header[AT(exponent)] == NONFINITE;
    if (flags & FLAG_OVERFLOW && !nonfinite)
        note_first(&core->overflow_index, index);
    if (nonfinite)
        note_first(&core->nonfinite_index, packet_of(core, index));
    if (announced)
        *exponent_of(core, index) = header[AT(exponent)];
    if (announced && core->found)
        core->found[packet_of(core, index)] = header[AT(exponent)];
    if (core->salted)                   /* the salt that counted; another slot for the next of this chain if it collided */
        core->salts[chain] = (uint8_t)(header[AT(priority)] + ((flags & FLAG_COLLISION) != 0));
    if (core->round_target > 0)
        note_marks(core, header, chain, sample);
    /* overtaken, and no rank's contribution was lost: so our copy of the result was, of which the others do not know */
    int asked = core->status[chain] & (CHAIN_COUNTED | CHAIN_ASKED | CHAIN_PROBED);
    if (core->tells_losses && resent && !asked && (flags & FLAGS_OF_LOSS) != FLAGS_OF_LOSS)
        core->echo++;
    core->status[chain] = 0;
    core->index[chain] = index + core->window;
    if (core->completed == 0)
        core->first_at = now;
    core->in_flight--;
    core->completed++;
    if (core->srtt == 0 && resent && core->backoff > 0) {
        /* before the first sample only doubling finds out how long a trip takes: once for each stall, for good */
        int64_t doubled = 2 * core->rto;
        core->rto = doubled < core->rto_max ? doubled : core->rto_max;
    }
    core->backoff = 0;
    if (!resent)                        /* or probes might go on for ever, each for the answer to the one before */
        core->probes = 0;
    core->progress_at = now;
    core->counters[COUNT_RESULTS]++;
    if (flags & (FLAG_ECN | FLAG_COLLISION)) {
        core->counters[COUNT_MARKED] += (flags & FLAG_ECN) != 0;
        core->counters[COUNT_COLLIDED] += (flags & FLAG_COLLISION) != 0;
    }
    ina_settle(core);
    if (core->lookahead > 0 && core->lookahead < core->window)
        make_ready(core, index + core->lookahead, ina_chain_of(core, index + core->lookahead));
    if (!core->fallback) {
        make_ready(core, index + core->window, chain);
        return sample;
    }
    while (core->index[ina_chain_of(core, core->oldest)] > core->oldest) {
        core->oldest++;
        make_ready(core, core->oldest + core->window - 1, ina_chain_of(core, core->oldest - 1));
    }
    return sample;
}

/* Whether time-outs have doubled as far as they do. */
static int waits_longest(const struct ina_core *core)
{
    return core->backoff > 0 && core->rto << (core->backoff < 20 ? core->backoff : 20) >= core->rto_max;
}

/* Store who has contributed to a packet in flight. If we are counted, but the next time-out is the longest, do not wait
   for it, and take along a sum in whose slot no other rank may join. */
static void take_status(struct ina_core *core, const uint8_t *header, uint32_t chain, int64_t now)
{
    uint32_t bitmap = load32(header + AT(bitmap)), node = load16(header + AT(node));
    for (uint32_t i = 0; i < core->nodes; i++) {
        if (core->node_id[i] != node)
            continue;
        core->node_bitmap[i] = bitmap;
        core->node_heard_at[i] = now;
    }
    for (uint32_t i = 0; i < core->path_length; i++) {
        if (core->path_nodes[i] != node)
            continue;
        if (bitmap & core->path_bits[i])
            core->status[chain] |= CHAIN_COUNTED;
        else
            core->status[chain] &= (uint16_t)~CHAIN_COUNTED;
    }
    uint32_t answered = core->status[chain] & (CHAIN_COUNTED | CHAIN_ASKED | CHAIN_QUEUED);
    if (core->fallback && answered == (CHAIN_COUNTED | CHAIN_ASKED) && waits_longest(core))
        ina_queue_resend(core, chain, 0);
    core->counters[COUNT_STATUSES]++;
}

/* Request the sum of the raw values instead of one that overflowed. */
static void repair(struct ina_core *core, uint32_t chain)
{
    if (core->status[chain] & CHAIN_RAW || core->per_lane > 1 || core->pattern == PATTERN_GATHER)
        return;                         /* of several values in a lane no sum overflows, and raw they would not fit */
    core->status[chain] &= (uint16_t)~(CHAIN_QUERY | CHAIN_COUNTED);
    core->status[chain] |= CHAIN_RAW;
    if (!(core->status[chain] & CHAIN_QUEUED))
        ina_queue_resend(core, chain, 0);
    core->counters[COUNT_REPAIRS]++;
}

/* PSN of the answer that a chain keeps. */
static uint32_t kept_psn(const struct ina_core *core, uint32_t chain)
{
    return load32(answer_of(core, chain) + core->prefix + AT(psn));
}

/* Whether a chain's answer is of this PSN, or of a later one, which shows that no rank lacks this one. */
static int keeps(const struct ina_core *core, uint32_t chain, uint32_t psn)
{
    uint64_t kept = kept_psn(core, chain);
    return psn < core->psn_limit && (kept + core->psn_limit - psn) % core->psn_limit < core->psn_limit / 2;
}

/* Resend the packet in flight of a chain, so that the switch sends its partial sum up, too. */
static void send_along(struct ina_core *core, uint32_t chain)
{
    core->status[chain] &= (uint16_t)~(CHAIN_QUERY | CHAIN_COUNTED);
    if (!(core->status[chain] & CHAIN_QUEUED))
        ina_queue_resend(core, chain, 0);
}

/* Ask for the result that keeps us from sending `psn`. Another rank has sent that, so it has the result: what we have heard
   of its sum is out of date. No more often than it can come. */
static void ask_for_hindrance(struct ina_core *core, uint32_t psn, int64_t now)
{
    int64_t limit = (int64_t)core->psn_limit, index = (psn + limit - (int64_t)core->base) % limit;
    int64_t hindrance = index - core->lookahead; /* whose exponent scales the values */
    if (index >= core->total || index >= core->oldest + core->window)
        hindrance = core->oldest;       /* of a later collective, or a window ahead */
    if (hindrance < core->oldest)
        return;
    uint32_t chain = ina_chain_of(core, hindrance);
    if (core->index[chain] == hindrance && core->status[chain] & CHAIN_FLIGHT && now - core->sent_at[chain] >= core->srtt)
        send_along(core, chain);
}

/* Send what the fallback server lacks of us: the packet in flight, or the answer that we kept. What is not sent yet is
   noted, and goes that way when it goes: it may be of the next collective. */
static void take_reminder(struct ina_core *core, const uint8_t *header, uint32_t chain, int64_t now)
{
    uint32_t psn = load32(header + AT(psn));
    int asked = load16(header + AT(node)) == core->path_nodes[0] && load32(header + AT(bitmap)) & core->own_bitmap;
    if (asked && core->status[chain] & CHAIN_FLIGHT && psn_of(core, core->index[chain]) == psn) {
        if (header[AT(flags)] & FLAG_RAW)       /* others have learned already that the sum overflowed */
            repair(core, chain);
        send_along(core, chain);
    } else if (asked && core->kept[chain] && keeps(core, chain, psn)) {
        if (!(core->kept[chain] & KEPT_QUEUED))
            core->answer_ring[(core->answer_head + core->answer_count++) % core->window] = chain;
        core->kept[chain] |= KEPT_QUEUED | (kept_psn(core, chain) == psn ? KEPT_ASKED : 0);
    } else if (asked && psn < core->psn_limit) {
        core->wanted[chain] = psn;      /* not sent yet, or it would be in flight or kept */
        ask_for_hindrance(core, psn, now);
    } else {
        core->counters[COUNT_STALE]++;
        return;
    }
    core->counters[COUNT_REMINDERS]++;
}

enum { FINE = -1 };

/* Counter for a packet that does not belong to this job; FINE: it does. */
static int refusal(const struct ina_core *core, const uint8_t *packet, int64_t bytes)
{
    const uint8_t *header = packet + core->prefix;
    if (bytes < core->prefix + INA_BYTES)
        return COUNT_BAD_LENGTH;
    if (core->prefix && !(is_udp(packet) && udp_source(packet) == INA_UDP_PORT))
        return COUNT_FOREIGN;
    if (header[AT(version_kind)] >> 4 != INA_VERSION)
        return COUNT_BAD_VERSION;
    uint32_t kind = header[AT(version_kind)] & 0x0f, lanes = load16(header + AT(lanes));
    if (kind != KIND_RESULT && kind != KIND_STATUS && !(kind == KIND_REMINDER && core->fallback))
        return COUNT_BAD_KIND;
    if (load16(header + AT(job)) != core->job)
        return COUNT_WRONG_JOB;
    if (header[AT(epoch)] != core->epoch)
        return COUNT_WRONG_EPOCH;
    if (lanes > 0 && (kind != KIND_RESULT || lanes != core->lanes || (core->per_lane > 1 && header[AT(flags)] & FLAG_RAW)))
        return COUNT_BAD_LANES;
    return bytes < core->prefix + INA_BYTES + 4 * (int64_t)lanes ? COUNT_BAD_LENGTH : FINE;
}

/* As what a status or a result is counted that is not of what a chain has in flight, or not of all ranks; FINE: it is. */
static int mismatch(const struct ina_core *core, const uint8_t *header, uint32_t chain)
{
    if (!(core->status[chain] & CHAIN_FLIGHT) || psn_of(core, core->index[chain]) != load32(header + AT(psn)))
        return COUNT_STALE;
    if (header[AT(flags)] & FLAG_DISAGREE)
        return FINE;
    if (load32(header + AT(tag)) != core->tag)
        return COUNT_WRONG_TAG;
    if ((header[AT(version_kind)] & 0x0f) == KIND_STATUS)
        return FINE;
    if (load16(header + AT(lanes)) == 0 && takes(core, core->index[chain]))
        return COUNT_BAD_LANES;
    int whole = load32(header + AT(bitmap)) == core->result_bitmap && load16(header + AT(node)) == ROOT_NODE;
    return whole ? FINE : COUNT_BAD_BITMAP;
}

static int64_t drop(struct ina_core *core, int why)
{
    core->counters[why]++;
    return INA_NEVER;
}

/* Check one packet and take it in. Returns a round trip time, INA_NEVER if it gives none. */
static int64_t take_packet(struct ina_core *core, const uint8_t *packet, int64_t bytes, int64_t now)
{
    const uint8_t *header = packet + core->prefix;
    int why = refusal(core, packet, bytes);
    if (why != FINE)
        return drop(core, why);
    uint32_t kind = header[AT(version_kind)] & 0x0f, chain = load32(header + AT(psn)) % core->window;
    if (kind == KIND_REMINDER) {
        take_reminder(core, header, chain, now);
        return INA_NEVER;
    }
    why = mismatch(core, header, chain);
    if (why != FINE)
        return drop(core, why);
    if (header[AT(flags)] & FLAG_DISAGREE) {
        note_first(&core->disagree_index, core->index[chain]);
        return INA_NEVER;
    }
    if (kind == KIND_STATUS) {
        take_status(core, header, chain, now);
        return INA_NEVER;
    }
    if (core->fallback && (header[AT(flags)] & (FLAG_OVERFLOW | FLAG_RAW)) == FLAG_OVERFLOW) {
        if (core->status[chain] & CHAIN_RAW)
            return INA_NEVER;
        int64_t sample = core->status[chain] & CHAIN_RESENT ? INA_NEVER : now - core->sent_at[chain];
        core->progress_at = now;
        core->backoff = core->probes = 0;
        repair(core, chain);
        return sample;
    }
    if (core->prefix && (packet[15] & ECN_MASK) == ECN_CONGESTED && core->round_target > 0 && !core->tells_losses)
        core->echo++;
    return take_result(core, header, chain, now);
}

/* Follow the round trip time, quicker down than up: a result that waited for the lost packet of another rank
   says nothing of the network, so no single one may count for much. */
static void measure(struct ina_core *core, int64_t sample, int64_t now)
{
    if (core->fallback && core->srtt > 0) {
        /* here no packet runs far ahead of a lost one, so all may wait for it: the wait must not count for each */
        int stalled = sample > core->srtt && now - sample <= core->timeout_at;
        if (stalled && core->stall_measured == core->timeout_at)
            return;
        if (stalled)
            core->stall_measured = core->timeout_at;
        sample = sample < 4 * core->srtt ? sample : 4 * core->srtt;
    }
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
static void resend_overtaken(struct ina_core *core, int64_t most, int64_t now)
{
    int64_t before = core->newest_sent - core->srtt - core->tolerance;
    if (before <= core->sent_since)
        return;
    int64_t since = INA_NEVER;
    int64_t count = core->frontier - core->oldest;
    count = count < core->window ? count : core->window; /* `oldest` may lag behind */
    uint32_t chain = ina_chain_of(core, core->frontier - count);
    for (; count > 0 && most > 0; count--, chain = chain + 1 == core->window ? 0 : chain + 1) {
        if ((core->status[chain] & (CHAIN_FLIGHT | CHAIN_QUEUED)) != CHAIN_FLIGHT)
            continue;
        if (core->sent_at[chain] >= before) {
            since = core->sent_at[chain] < since ? core->sent_at[chain] : since;
            continue;
        }
        /* with a fallback server: a sum that waits for another rank is not to be flushed at once for that */
        int asks = core->fallback && !(core->status[chain] & CHAIN_ASKED);
        ina_queue_resend(core, chain, asks ? CHAIN_QUERY : 0);
        most--;
    }
    if (count == 0)                     /* packets from now on are sent later than all of these */
        core->sent_since = since < now ? since : now;
}

struct ina_batch ina_batch_begin(const struct ina_core *core, int64_t now)
{
    return (struct ina_batch){now, core->newest_sent, core->completed, INA_NEVER};
}

void ina_batch_take(struct ina_core *core, struct ina_batch *batch, const uint8_t *packet, int64_t bytes)
{
    int64_t sample = take_packet(core, packet, bytes, batch->now);
    batch->quickest = sample < batch->quickest ? sample : batch->quickest;
}

/* One round trip time for all: they shared a trip. */
void ina_batch_end(struct ina_core *core, const struct ina_batch *batch)
{
    if (batch->quickest != INA_NEVER) {
        measure(core, batch->quickest, batch->now);
        core->tolerance -= core->tolerance / 256;
    }
    if (core->newest_sent > batch->newest_sent)
        resend_overtaken(core, 8 + 2 * (core->completed - batch->completed), batch->now);
}

void ina_absorb(struct ina_core *core, const uint8_t *data, int64_t bytes, int64_t segment, int64_t now)
{
    struct ina_batch batch = ina_batch_begin(core, now);
    for (int64_t at = 0; at < bytes; at += segment)
        ina_batch_take(core, &batch, data + at, bytes - at < segment ? bytes - at : segment);
    ina_batch_end(core, &batch);
}
