"""Externs of Tofino, compiled and interpreted, against what they are by hand."""

import pytest

from softswitch.compiler import CompileError
from softswitch.compiler.ir.crc import STANDARD, Crc
from tests.softswitch.differential.compare import Pair

from .programs import frame, program

RESULTS = "header results_t { bit<32> a; bit<32> b; bit<32> c; bit<32> d; }"


def results(pair: Pair, packet: bytes) -> tuple[int, ...]:
    """Return the four numbers that a program of `with_results` puts in front of a frame."""
    (left,) = pair.send(packet, 1)
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
            {"ingress_locals": "Hash<bit<8>>(HashAlgorithm_t.CUSTOM) h;", "ingress": "h.get({8w1});"},
            "polynomial",
        ),
        ({"ingress_locals": "DirectRegister<bit<32>>() r;"}, "extern 'DirectRegister'"),
    ],
)
def test_wrong_externs_are_refused(parts: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        program(**parts)
