"""The externs of v1model in C: one function per extern, by name in `HANDLERS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir.crc import Crc
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import member_path
from softswitch.engine.emit_c.layout import HeaderHome
from softswitch.engine.emit_c.statements import BodyWriter, Handler
from softswitch.engine.emit_c.text import c_integer, class_bits, is_signed, literal
from softswitch.engine.emit_c.wire import BitPart, CellBlock, checksum_terms, store_parts, stretches

ALGORITHMS = ("csum16", "crc32", "crc16", "xor16", "identity")
PAYLOAD_MAX = "P4_MAX_FRAME"
KEPT_BYTES = 128
"""Maximum length in bytes of the header of a mirrored or resubmitted packet (Tofino)."""


def _register_read(body: BodyWriter, call: ir.Extern) -> None:
    (target,), (index,) = call.args
    text, guard = body.register(call.instance, index)
    body.store(target, text if guard is None else f"{guard} ? {text} : 0")


def _register_write(body: BodyWriter, call: ir.Extern) -> None:
    (index,), (value,) = call.args
    text, guard = body.register(call.instance, index)
    line = f"{text} = {body.expressions.text(value)};"
    if guard is None:
        body.out.line(line)
    else:
        body.out.when(guard, line)


def _count(body: BodyWriter, call: ir.Extern) -> None:
    index = body.expressions.index(call.args[0][0])
    name = body.unit.counter_names[call.instance]
    size = body.unit.program.counters[call.instance].size
    body.out.line(f"p4_count(s->counter_{name}, {size}, {index}, {body.unit.architecture.counted});")


def _execute_meter(body: BodyWriter, call: ir.Extern) -> None:
    (target,), (index,) = call.args
    meter = body.unit.program.meters[call.instance]
    name = body.unit.meter_names[call.instance]
    with body.out.block(""):
        body.out.line(f"uint64_t index = {body.expressions.index(index)};")
        size = body.unit.architecture.counted
        colour = f"p4_meter(&s->meter_{name}[index], s->now_us, {cost(meter, size)}, {size})"
        text = f"(uint64_t)(index < {meter.size} ? {colour} : P4_GREEN)"
        body.store(target, _cut(text, 64, target))


def cost(meter: ir.Meter, size: str) -> str:
    """Return C text for the number of tokens that a packet of `size` bytes (C text) takes from a meter."""
    return size if meter.unit == "bytes" else "1"


def _send_digest(body: BodyWriter, call: ir.Extern) -> None:
    number = list(body.unit.program.digests).index(call.instance)
    words = [str(number)]
    for expr in call.args[0]:
        if is_wide(expr.type):
            raise Unsupported("a digest of a value of more than 128 bits", expr.pos)
        text = body.expressions.value(expr).text
        words += [f"(uint64_t)({text})", f"(uint64_t)({text} >> 64)" if ir.width_of(expr.type) > 64 else "0"]
    with body.out.block(""):
        body.out.line(
            f"const uint64_t words[{len(words)}] = {{{', '.join(words)}}};",
            f"p4_digest(s->digests, words, {len(words)});",
        )


def _nothing(body: BodyWriter, call: ir.Extern) -> None:
    del body, call


def _mark_to_drop(body: BodyWriter, call: ir.Extern) -> None:
    del call
    body.out.line(
        "p->standard_metadata.egress_spec = P4_DROP_PORT;",
        "p->standard_metadata.mcast_grp = 0;",
    )


def _clone(body: BodyWriter, call: ir.Extern) -> None:
    body.out.line(
        "v->request.clone = 1;",
        f"v->request.clone_session = (uint16_t)({body.expressions.text(call.args[0][0])});",
    )
    fields = body.expressions.text(call.args[1][0]) if len(call.args) > 1 else "-1"
    body.out.line(f"v->request.clone_fields = (int32_t)({fields});")


def _resubmit(body: BodyWriter, call: ir.Extern) -> None:
    body.out.line(
        "v->request.resubmit = 1;",
        f"v->request.resubmit_fields = (int32_t)({body.expressions.text(call.args[0][0])});",
    )


def _recirculate(body: BodyWriter, call: ir.Extern) -> None:
    body.out.line(
        "v->request.recirculate = 1;",
        f"v->request.recirculate_fields = (int32_t)({body.expressions.text(call.args[0][0])});",
    )


def _truncate(body: BodyWriter, call: ir.Extern) -> None:
    length = body.expressions.text(call.args[0][0])
    with body.out.block(""):
        body.out.line(f"uint64_t length = {length};")
        body.out.when("length < p->truncate_to", "p->truncate_to = (uint32_t)length;")


def _mirror(body: BodyWriter, call: ir.Extern) -> None:
    (session,), data = call.args
    body.out.line(
        "v->request.clone = 1;",
        f"v->request.clone_session = (uint16_t)({body.expressions.text(session)});",
    )
    _keep_bytes(body, data, "mirror", call.pos)


def _resubmit_with(body: BodyWriter, call: ir.Extern) -> None:
    body.out.line("v->request.resubmit = 1;")
    _keep_bytes(body, call.args[0], "resubmit", call.pos)


def _keep_bytes(body: BodyWriter, data: Sequence[ir.Expr], place: str, pos: ir.Position) -> None:
    """Write code that stores values consecutively, for the header of a mirror or a resubmitted packet."""
    parts = _parts(body, data)
    bits = sum(part.width for part in parts)
    if bits > 8 * KEPT_BYTES:
        raise Unsupported(f"{bits} bits for {place}", pos, f"at most {8 * KEPT_BYTES}")
    body.out.line(f"p->packet->{place}_length = {(bits + 7) // 8};")
    store_parts(f"p->packet->{place}", 0, parts, body.out)


def _random(body: BodyWriter, call: ir.Extern) -> None:
    (target,), (low,), (high,) = call.args
    if is_signed(low.type):
        raise Unsupported("random of signed numbers", call.pos)
    low_text, high_text = body.expressions.text(low), body.expressions.text(high)
    drawn = f"p4_random_between(&s->random, {low_text}, {high_text})"
    body.store(target, _cut(drawn, 128, target))


def _cut(text: str, bits: int, target: ir.Expr) -> str:
    """Return C text for the low bits of `text`, an unsigned `bits`-bit C value, in the width of `target`."""
    width = ir.width_of(target.type)
    if width >= bits:
        return f"({c_integer(class_bits(width))})({text})"
    return f"({c_integer(class_bits(width))})(({text}) & {literal(-1, width)})"


# --------------------------------------------------------------------------- hashes and checksums


def _algorithm(call: ir.Extern) -> str:
    """Return the algorithm of a hash or checksum. Raises Unsupported for unknown algorithms."""
    name = call.instance
    if name not in ALGORITHMS and Crc.parse(name) is None:
        raise Unsupported(f"hash algorithm {name}", call.pos, expected=" or ".join(ALGORITHMS))
    return name


def _parts(body: BodyWriter, data: Sequence[ir.Expr]) -> list[BitPart]:
    parts = []
    for expr in data:
        if is_wide(expr.type):
            raise Unsupported("a hash over a value of more than 128 bits", expr.pos)
        parts.append(BitPart(body.expressions.value(expr).text, ir.width_of(expr.type)))
    return parts


def _checksum_terms(body: BodyWriter, data: Sequence[ir.Expr], *, wide: bool) -> Iterator[str]:
    """Yield C terms whose sum has the same Internet checksum as `data`.

    If `wide`, one term may be the sum of many fields.
    """
    position, start = 0, 0
    while start < len(data):
        blocks, home = _summed_blocks(body, data[start:]) if position % 16 == 0 else ((), None)
        if home is None:
            yield from checksum_terms(_parts(body, data[start : start + 1]), position)
            position += ir.width_of(data[start].type)
            start += 1
            continue
        size = sum(block.size for block in blocks)
        if wide:
            yield f"p4_sum_words((const uint8_t *)&{home.text} + {blocks[0].place}, {size})"
        cells = [cell for block in blocks for cell in block.cells]
        if not wide:
            yield from checksum_terms(
                [BitPart(f"{home.text}.{cell.member}", 8 * cell.size) for cell in cells]
            )
        position += 8 * size
        start += sum(len(cell.slots) for cell in cells)


def _summed_blocks(
    body: BodyWriter, data: Sequence[ir.Expr]
) -> tuple[Sequence[CellBlock], HeaderHome | None]:
    """Return the blocks of a header (`wire.CellBlock`) whose fields are the beginning of `data`.

    Also return the header. The blocks are contiguous and whole 16-bit words; without such blocks, return
    ``((), None)``.
    """
    first = data[0]
    if not isinstance(first, ir.Member) or not isinstance(first.base.type, ir.Header):
        return (), None
    header, paths = member_path(first.base), [member_path(expr) for expr in data]
    home = body.expressions.header(first.base).home
    if header is None or not home.layout.dense or home.where is not None:
        return (), None
    for stretch in stretches(home.layout):
        wanted = [[(*header, slot.name) for cell in block.cells for slot in cell.slots] for block in stretch]
        begin = next((n for n, names in enumerate(wanted) if names[0] == paths[0]), len(stretch))
        end, covered = begin, 0
        while end < len(stretch) and stretch[end].size % 2 == 0:
            if paths[covered : covered + len(wanted[end])] != wanted[end]:
                break
            covered += len(wanted[end])
            end += 1
        if end > begin:
            return stretch[begin:end], home
    return (), None


def _digest(
    body: BodyWriter, name: str, data: Sequence[ir.Expr], *, payload: bool, wide: bool = False
) -> str:
    """Write code that hashes `data` by the algorithm `name`; return the result as a C value of 64 bits.

    If `wide`, a checksum over a header's fields is summed in larger pieces. Do not use it for fields that
    have just been written, as a load of several fields waits for their stores.
    """
    out = body.out
    varbits = any(isinstance(expr.type, ir.VarBits) for expr in data)
    if name == "csum16" and not payload and not varbits:
        terms = list(_checksum_terms(body, data, wide=wide)) or ["0"]
        out.line("uint64_t words = 0;")
        for start in range(0, len(terms), 4):
            out.line(f"words += {' + '.join(terms[start : start + 4])};")
        return "p4_fold(words)"
    room = sum(
        expr.type.max_width if isinstance(expr.type, ir.VarBits) else ir.width_of(expr.type) + 7
        for expr in data
    )
    out.line(
        f"uint8_t data[{room // 8 + 1}{f' + {PAYLOAD_MAX}' if payload else ''}];",
        "uint8_t *to = data;",
    )
    pending: list[ir.Expr] = []

    def flush() -> None:
        parts = _parts(body, pending)
        bits = sum(part.width for part in parts)
        store_parts("to", 0, parts, out)
        if bits:
            out.line(f"to += {(bits + 7) // 8};")
        pending.clear()

    for expr in data:
        if not isinstance(expr.type, ir.VarBits):
            pending.append(expr)
            continue
        if sum(ir.width_of(other.type) for other in pending) % 8:
            raise Unsupported("a hash over a varbit that does not begin at a whole byte", expr.pos)
        flush()
        place = body.expressions.scalar(expr)
        out.line(
            f"memcpy(to, {place.text}.data, {place.text}.bits / 8);",
            f"to += {place.text}.bits / 8;",
        )
    flush()
    if payload:
        out.line(
            "memcpy(to, p->frame + p->payload, p->frame_length - p->payload);",
            "to += p->frame_length - p->payload;",
        )
    size = "(size_t)(to - data)"
    if (crc := Crc.parse(name)) is not None:
        numbers = f"{crc.polynomial:#x}, {crc.initial:#x}, {crc.final_xor:#x}"
        return f"p4_crc(data, {size}, {crc.width}, {numbers}, {int(crc.reflected)})"
    return f"p4_{name}(data, {size})"


def _hash(body: BodyWriter, call: ir.Extern) -> None:
    (target,), (base,), data, (maximum,) = call.args
    name = _algorithm(call)
    with body.out.block(""):
        bits = 64
        if name == "identity" and sum(ir.width_of(expr.type) for expr in data) <= 32:
            bits = class_bits(max(ir.width_of(expr.type) for expr in (base, maximum)))
        if bits == 32:
            # P4's form of base + x % max, which should be as cheap as in other languages.
            digest = _identity(body, data)
        else:
            bits = 64
            size = body.summed.get(id(call), 0)
            if size:
                first = f"__builtin_bswap16((uint16_t){body.expressions.value(data[0]).text})"
                body.out.line(f"uint64_t words = {first} + p4_sum_words(at - {size}, {size});")
                digest = "__builtin_bswap16((uint16_t)p4_fold(words))"
            else:
                digest = _digest(body, name, data, payload=False)
        body.out.line(f"{c_integer(bits)} digest = {digest};")
        if isinstance(maximum, ir.Const):
            limit = max(1, maximum.value & ((1 << ir.width_of(maximum.type)) - 1))
            text = "digest" if limit >= 1 << bits else f"digest % {literal(limit, bits)}"
        elif ir.width_of(maximum.type) <= bits:
            body.out.line(f"{c_integer(bits)} max = {body.expressions.text(maximum)};")
            text = f"p4_mod{bits}(digest, max)"
        else:
            body.out.line(f"p4_u128 max = {body.expressions.text(maximum)};")
            text = "(max ? (uint64_t)(digest % max) : 0)"
        if not (isinstance(base, ir.Const) and base.value == 0):
            text = f"(uint64_t){text} + (uint64_t){body.expressions.value(base).text}"
            bits = 64
        body.store(target, _cut(text, bits, target))


def _identity(body: BodyWriter, data: Sequence[ir.Expr]) -> str:
    """Return up to 32 bits of data, padded to whole bytes, as a C value."""
    parts = _parts(body, data)
    width = sum(part.width for part in parts)
    position, terms = width + -width % 8, []
    for part in parts:
        position -= part.width
        terms.append(f"((uint32_t){part.text} << {position})" if position else part.text)
    return " | ".join(terms) or "0"


def _verify_checksum(body: BodyWriter, call: ir.Extern) -> None:
    (condition,), data, (checksum,) = call.args
    with body.out.block(f"if ({body.expressions.text(condition)})"):
        payload = call.function.endswith("with_payload")
        digest = _digest(body, _algorithm(call), data, payload=payload, wide=True)
        body.out.when(
            f"{digest} != {body.expressions.value(checksum).text}", "p->standard_metadata.checksum_error = 1;"
        )


def _update_checksum(body: BodyWriter, call: ir.Extern) -> None:
    (condition,), data, (checksum,) = call.args
    with body.out.block(f"if ({body.expressions.text(condition)})"):
        digest = _digest(body, _algorithm(call), data, payload=call.function.endswith("with_payload"))
        body.store(checksum, _cut(digest, 64, checksum))


HANDLERS: Mapping[str, Handler] = {
    "register.read": _register_read,
    "register.write": _register_write,
    "counter.count": _count,
    "direct_counter.count": _nothing,
    "meter.execute_meter": _execute_meter,
    "digest": _send_digest,
    "hash": _hash,
    "random": _random,
    "verify_checksum": _verify_checksum,
    "verify_checksum_with_payload": _verify_checksum,
    "update_checksum": _update_checksum,
    "update_checksum_with_payload": _update_checksum,
    "mark_to_drop": _mark_to_drop,
    "clone": _clone,
    "clone_preserving_field_list": _clone,
    "resubmit_preserving_field_list": _resubmit,
    "recirculate_preserving_field_list": _recirculate,
    "truncate": _truncate,
    "mirror": _mirror,
    "resubmit": _resubmit_with,
    "log_msg": _nothing,
    "assert": _nothing,
    "assume": _nothing,
}
