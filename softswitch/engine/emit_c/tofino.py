"""The engine's entry points for Tofino's programs: add the metadata in front of frames, and remove it."""

from __future__ import annotations

from collections.abc import Mapping

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import all_statements
from softswitch.engine.emit_c.externs import KEPT_BYTES
from softswitch.engine.emit_c.layout import GRESS_STRUCTS, LARGE_STRUCT, META_STRUCT, HeaderHome, ScalarHome
from softswitch.engine.emit_c.packet import declare_flags, describe_metadata, struct
from softswitch.engine.emit_c.text import Writer, c_integer, storage_bits
from softswitch.engine.emit_c.unit import CArchitecture, Translation
from softswitch.engine.tofino import (
    CELL,
    DROP,
    EGRESS_DEPARSER,
    EGRESS_PARSER,
    INGRESS_DEPARSER,
    INGRESS_PARSER,
    NO_GROUP,
    NO_MIRROR,
    NO_PORT,
    PORTS_OF_A_PIPE,
    RECIRCULATING,
    TM,
    behind_bytes,
    egress_header,
    error_numbers,
    front_bytes,
    passes_over_front,
    reads_parser_error,
    takes_front,
)

_COPIES = """\
static void start_packet(struct p4_packet *packet, const uint8_t *frame, uint32_t length)
{
    packet->frame = frame;
    packet->frame_length = packet->packet_length = length;
    packet->mirror_length = packet->resubmit_length = 0;
    packet->left_by = packet->queue = packet->cos = packet->bypass = 0;
}

/* Clear the storage that both gresses share, and one gress's own, from `start` to `end`. */
P4_INLINE void start_gress(p4_state *p, struct p4_packet *packet, size_t start, size_t end)
{
    p4_clear_lines(p, P4_INGRESS);
    p4_clear_lines((uint8_t *)p + start, end - start);
    memset(&packet->meta, 0, sizeof packet->meta);
    p->packet = packet;
    p->frame = packet->frame;
    p->frame_length = packet->frame_length;
    p->packet_length = packet->packet_length;
}

static void keep(struct p4_packet *to, const struct p4_packet *from)
{
    to->packet_length = from->packet_length;
    to->queue = from->queue;
    to->cos = from->cos;
    to->bypass = from->bypass;
}

static void p4_copy_packet(struct p4_packet *to, const struct p4_packet *from)
{
    start_packet(to, to->bytes, from->frame_length);
    keep(to, from);
    memcpy(to->bytes + P4_BEHIND, from->frame + P4_BEHIND, from->packet_length);
}

static void p4_lend_packet(struct p4_packet *to, const struct p4_packet *from)
{
    start_packet(to, from->frame, from->frame_length);
    keep(to, from);
}

/* The mirror of `from`: a header and the frame. */
static void p4_clone_packet(struct p4_pipeline *s, struct p4_packet *to, const struct p4_packet *from,
                            uint32_t instance_type, const uint8_t *frame, uint32_t length, int32_t field_list)
{
    (void)s, (void)instance_type, (void)field_list;
    if (length > P4_MAX_FRAME - from->mirror_length)
        length = P4_MAX_FRAME - from->mirror_length;
    start_packet(to, to->bytes, P4_BEHIND + from->mirror_length + length);
    to->packet_length = from->mirror_length + length;
    memcpy(to->bytes + P4_BEHIND, from->mirror, from->mirror_length);
    memcpy(to->bytes + P4_BEHIND + from->mirror_length, frame, length);
}

/* Copy the unparsed payload behind the headers; returns the length of both. */
P4_INLINE uint32_t add_payload(const p4_state *p, uint8_t *to, uint32_t headers)
{
    uint32_t payload = p->frame_length - p->payload, room = P4_MAX_FRAME - headers;
    if (payload > room)
        payload = room;
    p4_copy_bytes(to + headers, p->frame + p->payload, payload);
    return headers + payload;
}
"""

_INGRESS = """\
/* The engine's number of a multicast group: `group_number` in tofino.py. */
P4_INLINE uint16_t group_number(uint16_t group)
{
    return group == 0 || group == @no_group@ ? (uint16_t)(@no_group@ - group) : group;
}

/* From here on a packet is the output of the ingress deparser, and the payload. */
P4_INLINE void leave(struct p4_pipeline *restrict s, p4_state *restrict p, struct variables *restrict v)
{
    struct p4_packet *packet = p->packet;
    uint8_t *to = packet->bytes + P4_BEHIND;
    uint32_t length = add_payload(p, to, (uint32_t)(run_ingress_deparser(s, p, v, to) - to));
    packet->frame = packet->bytes;
    packet->frame_length = P4_BEHIND + length;
    packet->packet_length = length;
}

P4_INLINE void enter(struct p4_pipeline *restrict s, p4_state *restrict p, const uint8_t *restrict in,
                     uint64_t now_us, struct p4_verdict *restrict verdict)
{
    struct variables variables = {0}, *v = &variables;
    struct p4_packet *packet = p->packet;
@given@
    uint32_t error = run_parser(s, p, v, in);
@found@
    *verdict = (struct p4_verdict){.egress_spec = @no_port@, .dropped = 1, .clone_fields = -1,
                                   .resubmit_fields = -1, .recirculate_fields = -1};
@erroneous@
    run_ingress(s, p, v);
@always@
    verdict->clone = v->request.clone && !(@drop_ctl@ & @no_mirror@);
    verdict->clone_session = (uint16_t)v->request.clone_session;
    if (@drop_ctl@ & @drop@)
        return;
    verdict->resubmit = (uint8_t)v->request.resubmit;
    verdict->egress_spec = @ucast@;
    verdict->mcast_grp = group_number(@group_1@);
    verdict->mcast_grp_2 = group_number(@group_2@);
    verdict->rid = @rid@;
    verdict->exclude_1 = @exclude_1@;
    verdict->exclude_2 = @exclude_2@;
    verdict->unicast = verdict->egress_spec != @no_port@;
    verdict->dropped = !(verdict->unicast || verdict->mcast_grp || verdict->mcast_grp_2);
    packet->queue = (uint8_t)@queue@;
    packet->cos = (uint8_t)@cos@;
    packet->bypass = (uint8_t)@bypass@;
    verdict->priority = packet->queue < P4_PRIORITIES ? packet->queue : P4_PRIORITIES - 1;
@wanted@
}

static void p4_ingress(struct p4_pipeline *s, struct p4_packet *packet, const uint8_t *frame, uint32_t length,
                       uint16_t port, uint32_t instance_type, uint64_t now_us,
                       const struct p4_packet *previous, int32_t field_list, struct p4_verdict *verdict)
{
    int again = previous && instance_type == P4_RESUBMITTED;
    p4_state state, *p = &state;
    (void)field_list;
    if (previous && instance_type == P4_RECIRCULATED)
        port = previous->left_by;
@front@
    start_packet(packet, in, P4_FRONT + length);
    start_gress(p, packet, P4_INGRESS, P4_EGRESS);
    p->counted = length;
@told@
    enter(s, p, in, now_us, verdict);
}
"""

_FRONT = """\
    uint8_t bytes[P4_FRONT + P4_MAX_FRAME];
    const uint8_t *in = bytes;
    p4_store16(bytes, (again ? 0x8000u : 0) | (port & 0x1ffu));
    p4_store48(bytes + 2, now_us * 1000);
    memset(bytes + 8, 0, P4_FRONT - 8);
    if (again)
        memcpy(bytes + 8, previous->resubmit,
               previous->resubmit_length < P4_FRONT - 8 ? previous->resubmit_length : P4_FRONT - 8);
    memcpy(bytes + P4_FRONT, frame, length);
"""

_NO_FRONT = "    const uint8_t *in = frame - P4_FRONT;  /* the bytes in front of it are never read */"

_EGRESS = """\
static uint32_t p4_egress(struct p4_pipeline *restrict s, struct p4_packet *restrict packet,
                          const struct p4_copy *restrict copy, uint8_t *restrict out,
                          struct p4_verdict *restrict verdict)
{
    struct variables variables = {0}, *v = &variables;
    p4_state state, *p = &state;
    uint32_t cells = (packet->packet_length + @cell@ - 1) / @cell@;
    *verdict = (struct p4_verdict){.clone_fields = -1, .resubmit_fields = -1, .recirculate_fields = -1};
    packet->left_by = copy->egress_port;
    verdict->recirculate = copy->egress_port % @ports@ - @first@ < @count@u;
    if (packet->bypass) {
        memcpy(out, packet->frame + P4_BEHIND, packet->packet_length);
        return packet->packet_length;
    }
    start_gress(p, packet, P4_EGRESS, P4_LARGE);
    p->counted = packet->packet_length;
@told@
@front@
@given@
    uint32_t error = run_egress_parser(s, p, v, packet->frame);
@found@
    run_egress(s, p, v);
    uint32_t length = add_payload(p, out, (uint32_t)(run_deparser(s, p, v, out) - out));
    verdict->clone = v->request.clone && !(@drop_ctl@ & @no_mirror@);
    verdict->clone_session = (uint16_t)v->request.clone_session;
    verdict->dropped = @drop_ctl@ & @drop@;
    return length;
}
"""

_INGRESS_METADATA = {
    "resubmit_flag": "again",
    "ingress_port": "port",
    "ingress_mac_tstamp": "now_us * 1000",
}
_EGRESS_METADATA = {
    "egress_port": "copy->egress_port",
    "enq_qdepth": "copy->enq_qdepth * cells",
    "enq_tstamp": "(uint64_t)copy->enq_timestamp * 1000",
    "deq_qdepth": "copy->deq_qdepth * cells",
    "deq_timedelta": "(uint64_t)copy->deq_timedelta * 1000",
    "egress_rid": "copy->egress_rid",
    "egress_qid": "packet->queue",
    "egress_cos": "packet->cos",
    "pkt_length": "packet->packet_length",
}


def _emit_packet_functions(unit: Translation, out: Writer) -> None:
    """Write the functions that start, copy, lend and mirror packets."""
    del unit
    out.template(_COPIES)


def _emit_entries(unit: Translation, timed: bool, out: Writer) -> None:
    """Write ``p4_ingress`` and ``p4_egress``; `timed` is True if the program needs the time."""
    describe_metadata(unit, out)
    numbers = ", ".join(map(str, error_numbers(unit.program)))
    out.line(f"static const uint16_t parser_errors[] = {{{numbers}}};")
    out.line()
    clock = "    s->now_us = {};" if timed else ""
    always, wanted = ["    leave(s, p, v);"], []
    if _only_emits(unit.program):
        check = "    if (!verdict->dropped)  /* else its bytes are never read */"
        always, wanted = [], [check, "        leave(s, p, v);"]
    header = unit.headers[egress_header(unit.program)].c_name
    home = unit.homes.home(("standard_metadata", "egress"))
    assert isinstance(home, HeaderHome)
    # the frame is our own, or belongs to a lender that does not read it again
    front = f"    p4_store_{header}((uint8_t *)packet->frame, &{home.text});"
    erroneous = [] if reads_parser_error(unit.program) else ["    if (error)", "        return;"]
    out.template(
        _INGRESS,
        parts={
            "given": [
                clock.format("now_us"),
                *_set(unit, TM, ucast_egress_port=str(NO_PORT)),
                *_set(unit, TM, mcast_grp_a=str(NO_GROUP), mcast_grp_b=str(NO_GROUP)),
                *_set(unit, INGRESS_PARSER, global_tstamp="now_us * 1000"),
            ],
            "found": _set(unit, INGRESS_PARSER, parser_err="parser_errors[error]"),
            "erroneous": erroneous,
            "always": always,
            "wanted": wanted,
            "front": [_NO_FRONT] if passes_over_front(unit.program) else _FRONT.splitlines(),
            "told": _set_header(unit, "ingress", _INGRESS_METADATA),
        },
        no_port=str(NO_PORT),
        no_group=str(NO_GROUP),
        drop=str(DROP),
        no_mirror=str(NO_MIRROR),
        drop_ctl=_home(unit, (*INGRESS_DEPARSER, "drop_ctl")).text,
        ucast=_tm(unit, "ucast_egress_port"),
        group_1=_tm(unit, "mcast_grp_a"),
        group_2=_tm(unit, "mcast_grp_b"),
        rid=_tm(unit, "rid"),
        exclude_1=_tm(unit, "level1_exclusion_id"),
        exclude_2=_tm(unit, "level2_exclusion_id"),
        queue=_tm(unit, "qid"),
        cos=_tm(unit, "ingress_cos"),
        bypass=_tm(unit, "bypass_egress"),
    )
    out.template(
        _EGRESS,
        parts={
            "given": [
                clock.format("copy->now_us"),
                *_set(unit, EGRESS_PARSER, global_tstamp="copy->now_us * 1000"),
            ],
            "found": _set(unit, EGRESS_PARSER, parser_err="parser_errors[error]"),
            "told": _set_header(unit, "egress", _EGRESS_METADATA),
            "front": [] if takes_front(unit.program) else [front],
        },
        cell=str(CELL),
        ports=str(PORTS_OF_A_PIPE),
        first=str(RECIRCULATING.start),
        count=str(len(RECIRCULATING)),
        drop=str(DROP),
        no_mirror=str(NO_MIRROR),
        drop_ctl=_home(unit, (*EGRESS_DEPARSER, "drop_ctl")).text,
    )


def _only_emits(program: ir.Program) -> bool:
    """Return True if the deparser of ingress only writes bytes: neither mirrors nor digests."""
    return all(
        isinstance(s, ir.Assign | ir.Emit | ir.Forget | ir.If | ir.Inlined | ir.SetValidity)
        or (isinstance(s, ir.Extern) and s.function == "hash")
        for s in all_statements(program.ingress_deparser)
    )


def _home(unit: Translation, path: tuple[str, ...]) -> ScalarHome:
    home = unit.homes.home(path)
    assert isinstance(home, ScalarHome)
    return home


def _tm(unit: Translation, field: str) -> str:
    return _home(unit, (*TM, field)).text


def _set(unit: Translation, struct: tuple[str, ...], **values: str) -> list[str]:
    """Return assignments to fields of intrinsic metadata."""
    lines = []
    for field, value in values.items():
        home = _home(unit, (*struct, field))
        width = ir.width_of(home.type)
        lines.append(
            f"    {home.text} = ({c_integer(storage_bits(width))})({value} & {(1 << width) - 1:#x});"
        )
    return lines


def _set_header(unit: Translation, gress: str, values: Mapping[str, str]) -> list[str]:
    """Return C assignments to fields of the intrinsic metadata header; they do not make the header valid."""
    home = unit.homes.home(("standard_metadata", gress))
    assert isinstance(home, HeaderHome)
    lines = []
    for slot in home.layout.slots:
        if slot.name in values:
            width = ir.width_of(slot.type)
            value = f"({c_integer(storage_bits(width))})({values[slot.name]} & {(1 << width) - 1:#x})"
            lines.append(f"    {home.text}.{slot.member} = {value};")
    return lines


def _declare_sizes(program: ir.Program, out: Writer) -> None:
    """Write the C constants for the sizes in bytes of buffers in ``struct p4_packet``."""
    out.line(
        f"enum {{ P4_FRONT = {front_bytes(program)}, P4_BEHIND = {behind_bytes(program)}, "
        f"P4_MIRROR_BYTES = {KEPT_BYTES}, P4_RESUBMIT_BYTES = {KEPT_BYTES} }};"
    )
    out.line()


PACKET_OF_TOFINO = """\
/* A packet outside of the blocks: its bytes, and the requests of ingress. */
struct p4_packet {
    const uint8_t *frame;       /* between ingress and egress with room in front for egress's metadata */
    uint32_t frame_length, packet_length;   /* packet_length: without that room */
    uint32_t mirror_length, resubmit_length;
    uint16_t left_by;
    uint8_t queue, cos, bypass;
@meta@
    uint8_t mirror[P4_MIRROR_BYTES], resubmit[P4_RESUBMIT_BYTES];
    uint8_t bytes[P4_BEHIND + P4_MAX_FRAME];
} __attribute__((aligned(64)));
"""
STATE_OF_TOFINO = """\
const uint8_t *frame;
struct p4_packet *packet;
uint32_t frame_length, packet_length;
uint32_t payload;           /* offset of the unparsed rest */
uint32_t counted;           /* bytes for counters and meters, without the metadata in front */"""


def _declare_packet(unit: Translation, out: Writer) -> None:
    """Write ``struct p4_packet``, and ``p4_state``, the state of a packet in the blocks of one gress."""
    _declare_sizes(unit.program, out)
    storage = unit.homes.storage
    for line in PACKET_OF_TOFINO.splitlines():
        if line != "@meta@":
            out.line(line)
            continue
        with out.indented():
            struct("meta", storage.structs[META_STRUCT].lines, out)
    out.line()
    out.line("/* The state of a packet in the blocks of a gress. */")
    with out.block("typedef struct p4_state", "} p4_state;"):
        out.line(*STATE_OF_TOFINO.splitlines())
        declare_flags(unit, out)
        for name, members in storage.structs.items():
            if name != META_STRUCT:
                struct(name, members.lines, out, aligned=name in _first_structs())
        struct(LARGE_STRUCT, storage.large, out, aligned=True)
    out.line()
    out.line("/* Begin and end of each gress's storage: only the running gress's storage is cleared. */")
    with out.block("enum", "};"):
        for name, place in zip(("INGRESS", "EGRESS", "LARGE"), _first_structs(), strict=True):
            out.line(f"P4_{name} = offsetof(struct p4_state, {place}),")
    out.line()


def _first_structs() -> tuple[str, ...]:
    """Return the names of the first struct of each gress, and of the first struct shared by both."""
    return (*(struct for struct in GRESS_STRUCTS if struct.endswith("standard_metadata")), LARGE_STRUCT)


TOFINO = CArchitecture(
    by_gress=True,
    counted="p->counted",  # without the metadata in front of a frame
    options=(),
    blocks=("ingress", "egress"),
    deparsers=("ingress_deparser", "deparser"),
    declare_packet=_declare_packet,
    emit_packet_functions=_emit_packet_functions,
    emit_entries=_emit_entries,
)
