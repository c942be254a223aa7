"""A switch that takes programs for one architecture only.

Externs of Tofino, compiled and interpreted, against what they are by hand.

What a packet of a program for Tofino meets: two gresses, and bytes between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import CompileError, compile_source, p4info
from softswitch.compiler.ir.crc import STANDARD, Crc
from softswitch.engine.build import load
from softswitch.engine.cache import compile_once
from softswitch.engine.pipeline import PipelineError
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch, SwitchError
from softswitch.engine.tofino import NO_GROUP, group_number
from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.state import Device, Loading
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.script import parse_entry
from tests.softswitch.differential.traffic import Sent
from tests.softswitch.tofino.programs import frame, preprocessed, program, source


@pytest.mark.parametrize("architecture", ["tna", "t2na"])
def test_programs_for_other_architectures_are_refused(architecture: str) -> None:
    source = preprocessed(architecture=architecture)
    other = {"tna": "t2na", "t2na": "tna"}[architecture]
    config = p4.ForwardingPipelineConfig(
        p4info=p4info(compile_once(source)), p4_device_config=source.encode()
    )
    request = p4.SetForwardingPipelineConfigRequest
    message = f"the program is for architecture {architecture}; this switch runs {other} only"
    with Switch({1: MemoryPort()}) as switch:
        device = Device(switch, Loading(backend="interpreter", architecture=other))
        with pytest.raises(PipelineError, match=message):
            device.preload(source)
        with pytest.raises(InvalidArgument, match=message):
            device.configure(request.VERIFY_AND_COMMIT, config)
        assert device.running is None
        for wanted in (architecture, None):
            device = Device(switch, Loading(backend="interpreter", architecture=wanted))
            device.configure(request.VERIFY_AND_COMMIT, config)


def test_groups_belong_to_the_profile_of_a_selector() -> None:
    selecting = program(
        ingress_locals="""
    ActionProfile(64) ways;
    Hash<bit<16>>(HashAlgorithm_t.CRC16) spread;
    ActionSelector(ways, spread, SelectorMode_t.FAIR, 32w8, 32w4) chosen;
    action to(PortId_t port) { tm.ucast_egress_port = port; }
    table t {
        key = { hdr.ethernet.dst: exact; hdr.ethernet.src: selector; }
        actions = { to; }
        implementation = chosen;
    }""",
        ingress="t.apply();",
    )
    (ways,) = p4info(selecting).action_profiles
    named = (ways.preamble.name, ways.size, ways.with_selector, ways.max_group_size)
    assert named == ("Ingress.ways", 64, True, 8)


RESULTS = "header results_t { bit<32> a; bit<32> b; bit<32> c; bit<32> d; }"


def results(pair: Pair, packet: bytes, now_us: int = 1000) -> tuple[int, ...]:
    """Return the four numbers that a program of `with_results` puts in front of a frame."""
    (left,) = pair.send(packet, 1, now_us)
    pair.compare_state()
    return tuple(int.from_bytes(left.frame[at : at + 4], "big") for at in (0, 4, 8, 12))


def with_results(ingress: str, *, more_declarations: str = "", **parts: str) -> Pair:
    """Return the program whose ingress fills a header of results, which leaves in front of the frame."""
    return Pair(
        program(
            declarations=RESULTS + more_declarations,
            headers="results_t results;",
            ingress=f"tm.ucast_egress_port = 2; hdr.results.setValid(); {ingress}",
            egress_start="packet.extract(hdr.results); packet.extract(hdr.ethernet); transition accept;",
            **parts,
        )
    )


@pytest.mark.parametrize(
    ("crc", "check"),
    [
        (STANDARD["CRC8"], 0xF4),
        (STANDARD["CRC16"], 0xBB3D),
        (STANDARD["CRC32"], 0xCBF43926),
        (STANDARD["CRC64"], 0x6C40DF5F0B497347),
        (Crc(16, 0x1021, 0xFFFF, 0, reflected=False), 0x29B1),
        (Crc(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, reflected=True), 0xE3069283),
    ],
)
def test_crcs_have_their_published_check_values(crc: Crc, check: int) -> None:
    assert crc.of(b"123456789") == check
    assert crc.name in ("crc16", "crc32") or Crc.parse(crc.name) == crc


def test_hashes_compiled_are_those_of_the_catalogue() -> None:
    pair = with_results(
        "hdr.results.a = (bit<32>)own.get({hdr.ethernet}); hdr.results.b = plain.get({hdr.ethernet});"
        " hdr.results.c = (bit<32>)folded.get({hdr.ethernet});"
        " hdr.results.d = (bit<32>)low.get({hdr.ethernet});",
        ingress_locals="CRCPolynomial<bit<16>>(0x1021, false, false, false, 0xffff, 0) ccitt;"
        " Hash<bit<16>>(HashAlgorithm_t.CUSTOM, ccitt) own; Hash<bit<32>>(HashAlgorithm_t.CRC32) plain;"
        " Hash<bit<16>>(HashAlgorithm_t.XOR16) folded; Hash<bit<12>>(HashAlgorithm_t.IDENTITY) low;",
    )
    packet = frame(dst=0x010203040506, src=0xA0B0C0D0E0F0, kind=0x8899)
    header = packet[:14]
    folded = 0
    for at in range(0, 14, 2):
        folded ^= int.from_bytes(header[at : at + 2], "big")
    own = Crc(16, 0x1021, 0xFFFF, 0, reflected=False).of(header)
    assert results(pair, packet) == (own, STANDARD["CRC32"].of(header), folded, 0x899)


def test_crcs_are_repeated_in_wider_results_and_take_bits_as_one_number() -> None:
    """As p4testgen's tests of tna_hash_4 and tna_hash_5 have them, which are p4c's."""
    pair = with_results(
        "hdr.results.a = wide.get({8w1, 8w0, 8w1, 8w0, 8w1, 8w0});"
        " hdr.results.b = wide.get({17w1, 15w1, 14w1});"
        " hdr.results.c = (bit<32>)odd.get({16w1, 16w1, 16w1});"
        " hdr.results.d = (bit<32>)narrow.get({1w1, 16w1});",
        ingress_locals="Hash<bit<32>>(HashAlgorithm_t.CRC16) wide; Hash<bit<20>>(HashAlgorithm_t.CRC16) odd;"
        " Hash<bit<8>>(HashAlgorithm_t.CRC16) narrow;",
    )
    low = STANDARD["CRC16"].of(b"\x01\x00\x01") & 0xFF
    assert results(pair, frame()) == (0xBD01BD01, 0xC0FBC0FB, 0xDC0AD, low)


def test_register_actions_read_change_and_write_one_cell() -> None:
    pair = with_results(
        "hdr.results.a = counting.execute(hdr.ethernet.kind); hdr.results.b = pairing.execute(8w1);"
        " hdr.results.c = cells.read(hdr.ethernet.kind); cells.write(16w9, 77);",
        more_declarations="struct pair_t { bit<32> low; bit<32> high; }",
        ingress_locals="""
            Register<bit<32>, bit<16>>(16, 100) cells;
            RegisterAction<bit<32>, bit<16>, bit<32>>(cells) counting = {
                void apply(inout bit<32> value, out bit<32> before) {
                    before = value;
                    value = value |+| 0xffffff80;
                }
            };
            Register<pair_t, bit<8>>(4, {1, 2}) pairs;
            RegisterAction<pair_t, bit<8>, bit<32>>(pairs) pairing = {
                void apply(inout pair_t value, out bit<32> high) {
                    high = value.high;
                    if (value.low < 3) {
                        value.low = value.low + 1;
                    } else {
                        value.high = max(value.high, 9);
                    }
                }
            };
        """,
    )
    assert results(pair, frame(kind=3)) == (100, 2, 0xFFFFFFE4, 0)
    assert results(pair, frame(kind=3)) == (0xFFFFFFE4, 2, 0xFFFFFFFF, 0)
    assert results(pair, frame(kind=4)) == (100, 2, 0xFFFFFFE4, 0)
    assert results(pair, frame(kind=99)) == (0, 9, 0, 0)  # beyond the end: reads zero, writes nothing
    assert [pair.pipelines[1].read_register("Ingress.cells", i) for i in (0, 3, 9)] == [100, 0xFFFFFFFF, 77]


def test_a_register_that_a_packet_meets_twice_is_remarked_on() -> None:
    counting = """
        Register<bit<32>, bit<8>>(16) cells;
        RegisterAction<bit<32>, bit<8>, bit<32>>(cells) count = {
            void apply(inout bit<32> value) { value = value + 1; }
        };
    """
    either = "if (hdr.ethernet.kind == 1) { count.execute(1); } else { count.execute(2); }"
    assert program(ingress_locals=counting, ingress=either).remarks == ()
    twice = source(ingress_locals=counting, ingress=either + " count.execute(3);")
    (remark,) = compile_source(twice).remarks
    assert "a packet may access register 'Ingress.cells' 2 times" in remark.message
    with pytest.raises(CompileError, match=r"register 'Ingress\.cells' 2 times"):
        compile_source(twice, single_access=True)
    assert compile_source(source(ingress_locals=counting, ingress=either), single_access=True)


@pytest.mark.parametrize(
    ("operation", "factor", "exact"),
    [
        ("MUL", 3, lambda x: 3 * x),
        ("SQR", 3, lambda x: 3 * x * x),
        ("SQRT", 300, lambda x: 300 * x**0.5),
        ("DIV", 1 << 20, lambda x: (1 << 20) / x),
        ("RSQR", 1 << 30, lambda x: (1 << 30) / (x * x)),
        ("RSQRT", 1 << 20, lambda x: (1 << 20) / x**0.5),
    ],
)
def test_a_math_unit_comes_near_to_its_operation(
    operation: str, factor: int, exact: Callable[[int], float]
) -> None:
    pair = with_results(
        "hdr.results.a = approximate.execute(8w0);",
        ingress_locals=f"""
            MathUnit<bit<32>>(MathOp_t.{operation}, {factor}) unit;
            Register<bit<32>, bit<8>>(1) cells;
            RegisterAction<bit<32>, bit<8>, bit<32>>(cells) approximate = {{
                void apply(inout bit<32> value, out bit<32> result) {{
                    value = unit.execute(hdr.ethernet.dst[31:0]);
                    result = value;
                }}
            }};
        """,
    )
    assert results(pair, frame(dst=0))[0] == 0
    near = 0
    for x in (1, 2, 3, 5, 8, 9, 15, 16, 17, 100, 255, 256, 1000, 4095, 65535, 1_000_000):
        (found, *_) = results(pair, frame(dst=x))
        if 256 <= exact(x) < 1 << 32:
            # four leading bits of x (three for roots), squared at most, and eight of the result
            assert exact(x) / 1.28 < found < exact(x) * 1.28
            near += 1
    assert near > 4


def test_a_math_unit_takes_a_table_of_its_own() -> None:
    entries = ", ".join(str(number) for number in (15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 77))
    pair = with_results(
        "hdr.results.a = given.execute(hdr.ethernet.dst[31:0]);"
        " hdr.results.b = halved.execute(hdr.ethernet.dst[31:0]);",
        ingress_locals=f"MathUnit<bit<32>>(false, 0, -3, {{{entries}}}) given;"
        f" MathUnit<bit<32>>(false, -1, 0, {{{entries}}}) halved;",
    )
    assert results(pair, frame(dst=0))[:2] == (77 >> 3, 77)
    # 13 = 8/8 * 2**3 * 13/8: entry 13, shifted by 3 - 3; for the root: 2**3 is odd, so entry 6, shifted by 2
    assert results(pair, frame(dst=13))[:2] == (13, 6 << 2)
    assert results(pair, frame(dst=13 << 8))[:2] == (13 << 8, 6 << 6)


LPF = "Lpf<bit<32>, bit<8>>(4) filter;"


def test_a_low_pass_filter_follows_its_values_by_its_time_constants() -> None:
    pair = with_results(
        "hdr.results.a = filter.execute(hdr.ethernet.dst[31:0], 8w1);"
        " hdr.results.b = filter.execute(hdr.ethernet.dst[31:0], 8w2);",
        ingress_locals=LPF,
    )
    assert results(pair, frame(dst=1000))[:2] == (1000, 1000)  # not set: values pass as they are
    millisecond = (1 << 48) // 1_000_000
    settings = {"rise": millisecond, "fall": millisecond // 4, "average": 0, "last": 0}
    for pipeline in pair.pipelines:
        for name, value in settings.items():
            pipeline.write_register(f"Ingress.filter.{name}", 1, value)
    sent = ((500, 1000), (1000, 1000), (3000, 1000), (4000, 0), (5000, 0), (99_000, 0))
    seen = [results(pair, frame(dst=value), now_us)[0] for now_us, value in sent]
    # half of the way in half of the time constant; all of it from one on; down in a fourth of the speed
    assert seen == [499, 749, 1000, 750, 562, 0]


def test_wred_drops_nothing_below_and_everything_above_its_bounds() -> None:
    pair = with_results(
        "hdr.results.a = (bit<32>)early.execute(hdr.ethernet.dst[18:0], 8w1);",
        ingress_locals="Wred<bit<19>, bit<8>>(4, 1, 7) early;",
    )
    assert results(pair, frame(dst=5000))[0] == 7  # not set
    for pipeline in pair.pipelines:
        at_once = 1 << 48
        for name, value in (("gain", at_once), ("low", 100), ("high", 200), ("slope", (1 << 32) // 200)):
            pipeline.write_register(f"Ingress.early.{name}", 1, value)
    drops, now_us = {}, 2000
    for value in (50, 100, 150, 199, 200, 5000):
        found = []
        for _ in range(200):
            now_us += 10
            found.append(results(pair, frame(dst=value), now_us)[0])
        assert set(found) <= {1, 7}
        drops[value] = found.count(1)
    assert (drops[50], drops[100], drops[200], drops[5000]) == (0, 0, 200, 200)
    assert 25 < drops[150] < 80 < drops[199] < 130  # a quarter, and nearly half


def test_a_direct_filter_passes_values_and_says_so() -> None:
    compiled = program(
        ingress_locals="""
            DirectLpf<bit<48>>() filter;
            action through() { hdr.ethernet.src = filter.execute(hdr.ethernet.src); }
            table passing { key = { hdr.ethernet.kind: exact; } actions = { through; }
                            default_action = through(); filters = filter; }
        """,
        ingress="tm.ucast_egress_port = 2; passing.apply();",
    )
    assert any(
        "no control plane can configure the direct filter" in remark.message for remark in compiled.remarks
    )
    (left,) = Pair(compiled).send(frame(src=77), 1)
    assert left.frame == frame(src=77)


def test_saturation_of_signed_and_unsigned_words() -> None:
    pair = with_results(
        "bit<32> x = hdr.ethernet.dst[31:0]; bit<32> y = hdr.ethernet.src[31:0];"
        " hdr.results.a = x |+| y; hdr.results.b = x |-| y;"
        " hdr.results.c = (bit<32>)((int<32>)x |+| (int<32>)y);"
        " hdr.results.d = (bit<32>)((int<32>)x |-| (int<32>)y);"
    )
    edges = (0, 1, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 12345)
    for x in edges:
        for y in edges:
            signed_x, signed_y = ((n ^ 0x80000000) - 0x80000000 for n in (x, y))
            both = (signed_x + signed_y, signed_x - signed_y)
            signed = [max(-(1 << 31), min((1 << 31) - 1, n)) & 0xFFFFFFFF for n in both]
            expected = (min(x + y, 0xFFFFFFFF), max(x - y, 0), *signed)
            assert results(pair, frame(dst=x, src=y)) == expected


def test_a_checksum_is_verified_taken_apart_and_updated() -> None:
    pair = with_results(
        "hdr.results.a = (bit<32>)meta.wrong; hdr.results.b = (bit<32>)meta.residual;",
        metadata="bit<1> wrong; bit<16> residual;",
        parser_locals="Checksum() whole; Checksum() rest;",
        ingress_start="packet.extract(hdr.ethernet); whole.add(hdr.ethernet);"
        " meta.wrong = (bit<1>)whole.verify(); rest.subtract({hdr.ethernet.kind});"
        " rest.subtract_all_and_deposit(meta.residual); transition accept;",
        ingress_deparser_locals="Checksum() again;",
        ingress_deparser="hdr.results.d = (bit<32>)again.update({hdr.ethernet.dst, meta.residual});"
        " packet.emit(hdr);",
    )
    good = frame(dst=0x000100020003, src=0x000400050006, kind=0xFFFF - 21)
    assert results(pair, good) == (0, 21, 0, 0xFFFF - 6 - 21)
    assert results(pair, frame(dst=0x000100020003, src=0x000400050006, kind=5))[0] == 1


@pytest.mark.parametrize("bytes_", [2, 6, 20])
def test_a_checksum_over_a_header_is_that_of_its_fields(bytes_: int) -> None:
    """The header is summed where it was extracted; behind another field it is put together from its own."""
    words = "".join(f"bit<{8 * bytes_ // 2}> {name};" for name in "ab")
    parts = {
        "declarations": f"header words_t {{ {words} }}",
        "headers": "words_t words;",
        "metadata": "bit<16> own; bit<16> other;",
        "parser_locals": "Checksum() own; Checksum() other;",
        "ingress": "hdr.ethernet.kind = meta.own ^ meta.other; hdr.ethernet.src = (bit<48>)meta.own;"
        " tm.ucast_egress_port = 2;",
    }
    start = (
        "own.add(hdr.words); meta.own = own.get(); other.add({ 16w0, hdr.words }); meta.other = other.get();"
    )
    start = f"meta = {{...}}; packet.extract(hdr.words); {start}"
    pair = Pair(program(**parts, ingress_start=f"{start} packet.extract(hdr.ethernet); transition accept;"))
    for value in (0, 1, 0xFFFE, 0xFFFF):
        data = (value << 8 * (bytes_ - 2) | 0x1234 * (bytes_ > 2)).to_bytes(bytes_, "big")
        total = value + 0x1234 * (bytes_ > 2)
        folded = total if total <= 0xFFFF else total - 0xFFFF
        assert pair.send(data + frame(), 1) == [Sent(2, data + frame(src=folded, kind=0))]
    pair.compare_state()


def test_a_parser_counts() -> None:
    pair = with_results(
        "hdr.results.a = (bit<32>)meta.seen;",
        metadata="bit<8> seen;",
        parser_locals="ParserCounter() counter;",
        ingress_start="packet.extract(hdr.ethernet); counter.set(hdr.ethernet.kind[7:0]); transition more; }"
        " state more { transition select(counter.is_zero()) { true: accept; default: one; } }"
        " state one { packet.advance(8); counter.decrement(8w1); meta.seen = meta.seen + 1; transition more;",
    )
    assert results(pair, frame(kind=3))[0] == 3
    assert results(pair, frame(kind=0))[0] == 0
    assert pair.send(frame(kind=200), 1) == []  # the packet is shorter


def test_random_numbers_counters_and_digests_are_the_same_in_both() -> None:
    pair = with_results(
        "hdr.results.a = draw.get(); packets.count(hdr.ethernet.kind[3:0]);",
        metadata="bit<48> source;",
        ingress_locals="Random<bit<32>>() draw;"
        " Counter<bit<32>, bit<4>>(16, CounterType_t.PACKETS_AND_BYTES) packets;",
        ingress_deparser_locals="Digest<news_t>() news;",
        ingress_deparser="news.pack({hdr.ethernet.src}); packet.emit(hdr);",
        more_declarations="struct news_t { bit<48> source; }",
    )
    drawn = {results(pair, frame(src=source, kind=3))[0] for source in range(5)}
    assert len(drawn) == 5
    assert [pipeline.read_counter("Ingress.packets", 3) for pipeline in pair.pipelines] == [(5, 105)] * 2
    digests = [pipeline.take_digests() for pipeline in pair.pipelines]
    assert digests[0] == digests[1] == [("IngressDeparser.news", (source,)) for source in range(5)]


def test_each_entry_of_a_table_has_a_cell_of_its_direct_register() -> None:
    pair = with_results(
        "senders.apply(); hdr.results.b = meta.told;",
        metadata="bit<32> told;",
        ingress_locals="""
            DirectRegister<bit<32>>(7) sequence;
            DirectRegisterAction<bit<32>, bit<32>>(sequence) next = {
                void apply(inout bit<32> value, out bit<32> result) {
                    result = value;
                    value = value + 1;
                }
            };
            action number(bit<32> who) { meta.told = next.execute(); hdr.results.a = who; }
            action stranger() { hdr.results.a = 99; }
            table senders {
                key = { hdr.ethernet.src: exact; }
                actions = { number; stranger; }
                const default_action = stranger();
                registers = sequence;
            }
        """,
    )
    for text in ("senders 1 => number(11)", "senders 2 => number(12)"):
        for pipeline in pair.pipelines:
            pipeline.insert(*parse_entry(pair.program, text))
    told = [results(pair, frame(src=source))[:2] for source in (1, 1, 2, 3, 1, 2)]
    assert told == [(11, 7), (11, 8), (12, 7), (99, 0), (11, 9), (12, 8)]
    for pipeline in pair.pipelines:  # an entry keeps its cell with another action, but not beyond its end
        pipeline.modify(*parse_entry(pair.program, "senders 1 => number(21)"))
        pipeline.delete(*parse_entry(pair.program, "senders 2 => number(12)"))
        pipeline.insert(*parse_entry(pair.program, "senders 2 => number(22)"))
    assert [results(pair, frame(src=source))[:2] for source in (1, 2)] == [(21, 10), (22, 7)]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {
                "ingress_locals": "Register<bit<32>, bit<8>>(4) r;"
                " RegisterAction<bit<32>, bit<8>, bit<32>>(r) a;",
            },
            "lacks methods",
        ),
        ({"ingress_locals": "Register<bit<32>, bit<8>>(0) r;"}, "a size of 0"),
        (
            {
                "ingress_locals": "Register<bit<32>, bit<8>>(4) r;"
                " RegisterAction<bit<32>, bit<8>, bit<8>>(r) a = {"
                " void apply(inout bit<32> cell, out bit<8> x) { x = this.predicate(cell == 1); } };",
                "ingress": "a.execute(0);",
            },
            "unsupported: RegisterAction.predicate",
        ),
        (
            {"ingress_locals": "Hash<bit<8>>(HashAlgorithm_t.CUSTOM) h;", "ingress": "h.get({8w1});"},
            "polynomial",
        ),
        ({"ingress_locals": "MinMaxAction<bit<128>, bit<8>, bit<32>>(4) m;"}, "MinMaxAction"),
        ({"ingress": "tm.no_such_field = 1;"}, "no_such_field"),
        (
            {"ingress_locals": "MathUnit<bit<32>>(MathOp_t.SQR, 0) square;"},
            "0 does not fit parameter 'factor'",
        ),
        ({"ingress_locals": "MathUnit<bit<64>>(MathOp_t.SQR, 1) square;"}, "a math unit of bit<64>"),
        ({"ingress_deparser": "hdr.ethernet.src = meta.unused;"}, "bit<8>"),
        ({"egress_start": "transition nowhere;"}, "unknown state 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused(parts: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        program(**parts)


BRIDGED = "header bridged_t { bit<16> number; }"
TAKE_BRIDGED = "packet.extract(hdr.bridged); packet.extract(hdr.ethernet); transition accept;"
GROUPS = {group_number(0): [(3, 30)], 6: [(4, 40)]}
GROUP_0 = "if (hdr.ethernet.kind == 0) { tm.mcast_grp_a = 0; } else { tm.ucast_egress_port = 2; }"


def sent(pair: Pair, packet: bytes, port: int = 1) -> list[Sent]:
    """Return what leaves both back ends, which is the same."""
    found = pair.send(packet, port)
    pair.compare_state()
    return found


@pytest.mark.parametrize(
    ("parts", "given", "packet", "left"),
    [
        pytest.param({}, {}, frame(), [Sent(2, frame())], id="a frame passes and its payload stays"),
        pytest.param(
            {
                "declarations": BRIDGED,
                "headers": "bridged_t bridged;",
                "metadata": "bit<16> number;",
                "ingress": "meta.number = 7; hdr.bridged.setValid(); hdr.bridged.number = 0xbeef;"
                " tm.ucast_egress_port = 2;",
                "egress_start": TAKE_BRIDGED,
                "egress": "hdr.ethernet.kind = hdr.bridged.number; hdr.ethernet.src = (bit<48>)meta.number;"
                " hdr.bridged.setInvalid();",
            },
            {},
            frame(),
            [Sent(2, frame(src=0, kind=0xBEEF))],
            id="metadata of ingress reach egress as bytes only",
        ),
        *(
            pytest.param(parts, {}, frame(), [], id=f"dropped {how}")
            for how, parts in {
                "without a port": {"ingress": ""},
                "by ingress": {"ingress": "tm.ucast_egress_port = 2; deparser.drop_ctl = 1;"},
                "by egress": {"egress": "deparser.drop_ctl = 1;"},
                "with an invalid port": {
                    "ingress": "tm.ucast_egress_port = 2; invalidate(tm.ucast_egress_port);"
                },
                # p4testgen's tna_simple_switch: the control that should choose a port writes none
                "with an out parameter left alone": {
                    "declarations": "control Chooser(out PortId_t port)"
                    " { apply { if (false) { port = 2; } } }",
                    "ingress_locals": "Chooser() chooser;",
                    "ingress": "chooser.apply(tm.ucast_egress_port);",
                },
            }.items()
        ),
        pytest.param(
            {
                "metadata": "bit<16> told;",
                "egress_first": "meta.told = packet.lookahead<bit<16>>(); packet.extract(intrinsic);",
                "egress": "hdr.ethernet.src = (bit<48>)meta.told;",
            },
            {},
            frame(),
            [Sent(2, frame(src=2))],
            id="egress looks at its header before it takes it",
        ),
        pytest.param(
            {
                "ingress": "tm.ucast_egress_port = 2; tm.mcast_grp_a = 5; tm.mcast_grp_b = 6;",
                "egress": "hdr.ethernet.src = (bit<48>)intrinsic.egress_rid;",
            },
            {"groups": {5: [(3, 30), (4, 40)], 6: [(3, 31)]}},
            frame(),
            [
                *(Sent(3, frame(src=30)), Sent(4, frame(src=40))),
                *(Sent(3, frame(src=31)), Sent(2, frame(src=0))),
            ],
            id="two groups and a port get copies at once",
        ),
        *(
            pytest.param({"ingress": ingress}, {"groups": GROUPS}, packet, left, id=f"group 0 {how}")
            for how, ingress, packet, left in (
                ("is a group once asked for", GROUP_0, frame(kind=0), [Sent(3, frame(kind=0))]),
                ("is none unless asked for", GROUP_0, frame(kind=1), [Sent(2, frame(kind=1))]),
                ("is left", f"tm.mcast_grp_b = 0; tm.mcast_grp_b = {NO_GROUP};", frame(), []),
            )
        ),
        pytest.param(
            {
                "ingress": "tm.ucast_egress_port = 2; deparser.drop_ctl = 4;",
                "ingress_deparser_locals": "Mirror() mirror;",
                "ingress_deparser": "mirror.emit(10w11); packet.emit(hdr);",
            },
            {"sessions": {11: [(7, 0)]}},
            frame(),
            [Sent(2, frame())],
            id="bit 2 of drop_ctl suppresses the mirror",
        ),
        pytest.param(
            {
                "declarations": "header again_t { bit<64> data; }",
                "headers": "",
                "metadata": "again_t again; bit<64> data;",
                "ingress": "if (intrinsic.resubmit_flag == 0)"
                " { deparser.resubmit_type = 1; meta.data = 0xabcd; }"
                " else { hdr.ethernet.src = hdr.ethernet.src + 1; tm.ucast_egress_port = 2; }",
                "ingress_deparser_locals": "Resubmit() resubmit;",
                "ingress_deparser": "if (deparser.resubmit_type == 1)"
                " { resubmit.emit<again_t>({meta.data}); } packet.emit(hdr);",
            },
            {},
            frame(),
            [Sent(2, frame(src=3))],
            id="a resubmitted frame comes again with data in the place of the ports",
        ),
        pytest.param(
            {
                "ingress": "if (intrinsic.ingress_port == 68)"
                " { hdr.ethernet.kind = 9; tm.ucast_egress_port = 2; } else { tm.ucast_egress_port = 68; }"
            },
            {},
            frame(),
            [Sent(2, frame(kind=9))],
            id="a recirculation port leads back and is the port of origin then",
        ),
        pytest.param({}, {}, b"short", [], id="a truncated frame is dropped"),
        pytest.param(
            {"ingress": "if (parsed.parser_err == PARSER_ERROR_PARTIAL_HDR) { tm.ucast_egress_port = 3; }"},
            {},
            b"short",
            [Sent(3, b"short")],
            id="a truncated frame passes if ingress looks at the error",
        ),
        pytest.param(
            {
                "ingress": "tm.ucast_egress_port = 2; tm.bypass_egress = 1;",
                "egress": "hdr.ethernet.kind = 1;",
            },
            {},
            frame(),
            [Sent(2, frame())],
            id="without egress what the ingress deparser made is sent",
        ),
    ],
)
def test_what_leaves_the_switch(
    parts: dict[str, str], given: dict[str, Any], packet: bytes, left: list[Sent]
) -> None:
    assert sent(Pair(program(**parts), **given), packet) == left


@pytest.mark.parametrize(
    ("egress", "left"),
    [
        ("", "abcdef01"),
        ("hdr.part.c = hdr.part.c + 1;", "abceef01"),
        ("hdr.part.e = 0x77;", "abcdef77"),
        ("hdr.part.setInvalid();", ""),
        ("hdr.part.setInvalid(); hdr.part.setValid(); hdr.part.b = 0;", "ab0def01"),
        ("hdr.made.setValid(); hdr.made.c = 3;", "00030000abcdef01"),
        ("hdr.made.setValid(); hdr.made = hdr.part; hdr.part.a = 1;", "abcdef0101cdef01"),
    ],
)
def test_fields_that_nobody_touches_leave_as_they_came(egress: str, left: str) -> None:
    """Headers are copied but for the fields that may be assigned, if nothing else is done to them."""
    pair = Pair(
        program(
            declarations="header part_t { bit<8> a; bit<4> b; bit<4> c; bit<8> d; bit<8> e; }",
            headers="part_t made; part_t part;",
            ingress_start="packet.extract(hdr.part); packet.extract(hdr.ethernet); transition accept;",
            egress_start="packet.extract(hdr.part); packet.extract(hdr.ethernet); transition accept;",
            egress=egress,
        )
    )
    assert sent(pair, bytes.fromhex("abcdef01") + frame()) == [Sent(2, bytes.fromhex(left) + frame())]


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_the_engines_send_to_both_groups_and_exclude_by_the_second_level(
    backend: Literal["compiled", "interpreter"],
) -> None:
    ingress = (
        "tm.mcast_grp_a = 5; tm.mcast_grp_b = 6; tm.ucast_egress_port = 3; tm.rid = 9;"
        " tm.level2_exclusion_id = intrinsic.ingress_port;"
    )
    with Switch({port: MemoryPort() for port in (1, 2, 3)}) as switch:
        switch.load(load(program(ingress=ingress), backend=backend))
        switch.set_multicast_group(5, [(1, 9), (2, 9), (1, 8)])
        switch.set_multicast_group(6, [(2, 7), (1, 9)])
        switch.inject(1, [frame()], now_us=1)
        left = {port: len(switch.drain(port)) for port in (1, 2, 3)}
    assert left == {1: 1, 2: 2, 3: 1}


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("tm.level1_exclusion_id = 40;", {1: 0, 2: 1, 3: 1}),
        ("tm.level1_exclusion_id = 50;", {1: 1, 2: 1, 3: 0}),
        ("tm.level1_exclusion_id = 60;", {1: 1, 2: 1, 3: 1}),
        ("tm.level2_exclusion_id = 7; tm.rid = 9;", {1: 0, 2: 1, 3: 0}),
        ("tm.level2_exclusion_id = 7; tm.rid = 8;", {1: 1, 2: 1, 3: 1}),
        ("tm.level2_exclusion_id = 2; tm.rid = 10;", {1: 1, 2: 0, 3: 1}),
        ("tm.level1_exclusion_id = 50; tm.level2_exclusion_id = 2; tm.rid = 10;", {1: 1, 2: 0, 3: 0}),
    ],
)
def test_members_are_excluded_by_their_own_id_or_by_ports_and_rid(
    asked: str,
    expected: dict[int, int],
    backend: Literal["compiled", "interpreter"],
) -> None:
    with Switch({port: MemoryPort() for port in (1, 2, 3)}) as switch:
        switch.load(load(program(ingress=f"tm.mcast_grp_b = 5; {asked}"), backend=backend))
        switch.set_multicast_group(5, [(1, 9), (2, 10), (3, 9)], exclusions=[40, 0, 50])
        switch.set_exclusion(7, [1, 2, 3])
        switch.inject(1, [frame()], now_us=1)
        assert {port: len(switch.drain(port)) for port in (1, 2, 3)} == expected
        switch.set_multicast_group(5, [(1, 9), (2, 10), (3, 9)])
        switch.set_exclusion(7, [])
        switch.set_exclusion(2, [])
        switch.inject(1, [frame()], now_us=1)
        assert [len(switch.drain(port)) for port in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            lambda switch: switch.set_multicast_group(5, [(1, 9), (1, 8)], exclusions=[4]),
            "multicast group 5 has 1 exclusion ids for 2 members",
        ),
        (
            lambda switch: switch.set_multicast_group(5, [(1, 9)], exclusions=[65536]),
            r"level 1 exclusion id 65536: want 0\.\.65535",
        ),
        (lambda switch: switch.set_exclusion(0, [1]), r"level 2 exclusion id 0: want 1\.\.65535"),
    ],
)
def test_exclusion_ids_are_checked(call: Callable[[Switch], object], why: str) -> None:
    with Switch({1: MemoryPort()}) as switch, pytest.raises(SwitchError, match=why):
        call(switch)


def test_an_ingress_mirror_is_the_frame_as_it_came_behind_its_header() -> None:
    pair = Pair(
        program(
            declarations="header mirrored_t { bit<8> what; bit<8> port; }",
            headers="mirrored_t mirrored;",
            metadata="bit<8> what; bit<8> port; MirrorId_t session;",
            ingress="hdr.ethernet.src = 0xabc; tm.ucast_egress_port = 2; deparser.mirror_type = 1;"
            " meta.what = 3; meta.port = (bit<8>)intrinsic.ingress_port; meta.session = 11;",
            ingress_deparser_locals="Mirror() mirror;",
            ingress_deparser="if (deparser.mirror_type == 1)"
            " { mirror.emit<mirrored_t>(meta.session, {meta.what, meta.port}); } packet.emit(hdr);",
            egress_start="transition select(intrinsic.egress_port) { 7: of_mirror; default: of_frame; } }"
            " state of_mirror { packet.extract(hdr.mirrored); transition of_frame; }"
            " state of_frame { packet.extract(hdr.ethernet); transition accept;",
        ),
        sessions={11: [(7, 0)]},
    )
    assert sent(pair, frame(), port=5) == [Sent(7, b"\x03\x05" + frame()), Sent(2, frame(src=0xABC))]


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_an_egress_mirror_is_the_frame_as_it_leaves_even_if_it_is_dropped(
    backend: Literal["compiled", "interpreter"],
) -> None:
    mirrors = program(
        egress="if (intrinsic.egress_port == 2)"
        " { hdr.ethernet.kind = 1; deparser.drop_ctl = 1; deparser.mirror_type = 1; }",
        egress_deparser_locals="Mirror() mirror;",
        egress_deparser="if (deparser.mirror_type == 1) { mirror.emit(10w12); } packet.emit(hdr);",
    )
    with Switch({port: MemoryPort() for port in (1, 2, 7)}) as switch:
        switch.load(load(mirrors, backend=backend))
        switch.set_clone_session(12, [(7, 0)])
        switch.inject(1, [frame()], now_us=1)
        assert [switch.drain(port) for port in (2, 7)] == [[], [frame(kind=1)]]
        assert switch.statistics(2).egress_dropped == 1


@pytest.mark.parametrize("gress", ["ingress", "egress"])
def test_reject_ends_a_parser_as_accept_does_and_no_case_that_fits_is_an_error(gress: str) -> None:
    """As p4testgen's tests of parser_reject and tna_pvs_fixed have it, which are p4c's."""

    def pair(other: str) -> Pair:
        select = f"transition select(hdr.ethernet.kind) {{ 7: accept; {other} }}"
        return Pair(program(**{f"{gress}_start": f"packet.extract(hdr.ethernet); {select}"}))

    for kind in (7, 8):
        assert sent(pair("default: reject;"), frame(kind=kind)) == [Sent(2, frame(kind=kind))]
    left = [] if gress == "ingress" else [Sent(2, frame(kind=8))]
    assert sent(pair(""), frame(kind=8)) == left


def test_egress_is_told_of_the_queue_and_the_length() -> None:
    egress = (
        "hdr.ethernet.src = (bit<48>)intrinsic.enq_qdepth; hdr.ethernet.kind = intrinsic.pkt_length;"
        " hdr.ethernet.dst = (bit<48>)intrinsic.deq_timedelta;"
    )
    (left,) = sent(Pair(program(egress=egress)), frame())
    # the queue of `traffic.QUEUE`: 5 packets of one cell each, 40 us
    assert left.frame == frame(dst=40_000, src=5, kind=len(frame()))


_OTHER = (
    "control Other(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t intrinsic,"
    " in egress_intrinsic_metadata_from_parser_t parsed,"
    " inout egress_intrinsic_metadata_for_deparser_t deparser,"
    " inout egress_intrinsic_metadata_for_output_port_t port) { apply { } }"
    " Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Other(), EgressDeparser()) two;"
)


@pytest.mark.parametrize("pipes", ["pipe, pipe", "pipe, pipe, pipe, pipe", "pipe, same"])
def test_all_pipes_of_a_switch_may_have_the_same_pipeline(pipes: str) -> None:
    same = (
        "Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser())"
    )
    text = source().replace("Switch(pipe)", f"{same} same; Switch({pipes})")
    compiled = compile_source(text)
    assert sent(Pair(compiled), frame()) == [Sent(2, frame())]
    assert [remark.message for remark in compiled.remarks] == [
        "the pipes of the switch share their tables and registers"
    ]


def test_a_switch_of_two_different_pipelines_is_refused() -> None:
    text = source().replace("Switch(pipe)", f"{_OTHER} Switch(pipe, two)")
    with pytest.raises(CompileError, match="pipeline 1 of the switch has other blocks than pipeline 0"):
        compile_source(text)
