"""What a packet of a program for Tofino meets: two gresses, and bytes between them."""

from typing import Literal

import pytest

from softswitch.compiler import CompileError, compile_source
from softswitch.engine.build import load
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch, SwitchError
from softswitch.engine.tofino import NO_GROUP, group_number
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.traffic import Sent

from .programs import frame, program, source

BRIDGED = "header bridged_t { bit<16> number; }"
TAKE_BRIDGED = "packet.extract(hdr.bridged); packet.extract(hdr.ethernet); transition accept;"


def sent(pair: Pair, packet: bytes, port: int = 1) -> list[Sent]:
    """Return what leaves both back ends, which is the same."""
    found = pair.send(packet, port)
    pair.compare_state()
    return found


def test_a_frame_passes_and_its_payload_stays() -> None:
    assert sent(Pair(program()), frame()) == [Sent(2, frame())]


def test_metadata_of_ingress_reaches_egress_only_as_bytes() -> None:
    pair = Pair(
        program(
            declarations=BRIDGED,
            headers="bridged_t bridged;",
            metadata="bit<16> number;",
            ingress="meta.number = 7; hdr.bridged.setValid(); hdr.bridged.number = 0xbeef;"
            " tm.ucast_egress_port = 2;",
            egress_start=TAKE_BRIDGED,
            egress="hdr.ethernet.kind = hdr.bridged.number; hdr.ethernet.src = (bit<48>)meta.number;"
            " hdr.bridged.setInvalid();",
        )
    )
    assert sent(pair, frame()) == [Sent(2, frame(src=0, kind=0xBEEF))]


def test_a_frame_without_a_port_is_dropped_and_so_is_one_that_asks_for_it() -> None:
    assert sent(Pair(program(ingress="")), frame()) == []
    assert sent(Pair(program(ingress="tm.ucast_egress_port = 2; deparser.drop_ctl = 1;")), frame()) == []
    assert sent(Pair(program(egress="deparser.drop_ctl = 1;")), frame()) == []
    gone = Pair(program(ingress="tm.ucast_egress_port = 2; invalidate(tm.ucast_egress_port);"))
    assert sent(gone, frame()) == []


def test_a_port_that_an_out_parameter_leaves_alone_is_none() -> None:
    """p4testgen's tna_simple_switch: the control that should choose a port misses, and writes none."""
    declarations = "control Chooser(out PortId_t port) { apply { if (false) { port = 2; } } }"
    parts = {"declarations": declarations, "ingress_locals": "Chooser() chooser;"}
    assert sent(Pair(program(ingress="chooser.apply(tm.ucast_egress_port);", **parts)), frame()) == []


def test_egress_may_look_at_its_header_before_it_takes_it() -> None:
    first = "meta.told = packet.lookahead<bit<16>>(); packet.extract(intrinsic);"
    pair = Pair(
        program(metadata="bit<16> told;", egress_first=first, egress="hdr.ethernet.src = (bit<48>)meta.told;")
    )
    assert sent(pair, frame()) == [Sent(2, frame(src=2))]


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


def test_two_groups_and_a_port_get_copies_at_once() -> None:
    ingress = "tm.ucast_egress_port = 2; tm.mcast_grp_a = 5; tm.mcast_grp_b = 6;"
    egress = "hdr.ethernet.src = (bit<48>)intrinsic.egress_rid;"
    pair = Pair(program(ingress=ingress, egress=egress), groups={5: [(3, 30), (4, 40)], 6: [(3, 31)]})
    expected = [Sent(3, frame(src=30)), Sent(4, frame(src=40)), Sent(3, frame(src=31)), Sent(2, frame(src=0))]
    assert sent(pair, frame()) == expected


def test_group_0_is_a_group_like_others_once_a_program_asks_for_it() -> None:
    groups = {group_number(0): [(3, 30)], 6: [(4, 40)]}
    asked = "if (hdr.ethernet.kind == 0) { tm.mcast_grp_a = 0; } else { tm.ucast_egress_port = 2; }"
    pair = Pair(program(ingress=asked), groups=groups)
    assert sent(pair, frame(kind=0)) == [Sent(3, frame(kind=0))]
    assert sent(pair, frame(kind=1)) == [Sent(2, frame(kind=1))]
    gone = Pair(program(ingress=f"tm.mcast_grp_b = 0; tm.mcast_grp_b = {NO_GROUP};"), groups=groups)
    assert sent(gone, frame()) == []


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


def test_exclusion_ids_are_checked() -> None:
    with Switch({1: MemoryPort()}) as switch:
        with pytest.raises(SwitchError, match="multicast group 5 has 1 exclusion ids for 2 members"):
            switch.set_multicast_group(5, [(1, 9), (1, 8)], exclusions=[4])
        with pytest.raises(SwitchError, match=r"level 1 exclusion id 65536: want 0\.\.65535"):
            switch.set_multicast_group(5, [(1, 9)], exclusions=[65536])
        with pytest.raises(SwitchError, match=r"level 2 exclusion id 0: want 1\.\.65535"):
            switch.set_exclusion(0, [1])


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


def test_an_egress_mirror_is_the_frame_as_it_leaves_even_if_it_is_dropped() -> None:
    pair = Pair(
        program(
            egress="if (intrinsic.egress_port == 2)"
            " { hdr.ethernet.kind = 1; deparser.drop_ctl = 1; deparser.mirror_type = 1; }",
            egress_deparser_locals="Mirror() mirror;",
            egress_deparser="if (deparser.mirror_type == 1) { mirror.emit(10w12); } packet.emit(hdr);",
        ),
        sessions={12: [(7, 0)]},
    )
    assert sent(pair, frame()) == [Sent(7, frame(kind=1))]


def test_bit_2_of_drop_ctl_suppresses_the_mirror() -> None:
    pair = Pair(
        program(
            ingress="tm.ucast_egress_port = 2; deparser.drop_ctl = 4;",
            ingress_deparser_locals="Mirror() mirror;",
            ingress_deparser="mirror.emit(10w11); packet.emit(hdr);",
        ),
        sessions={11: [(7, 0)]},
    )
    assert sent(pair, frame()) == [Sent(2, frame())]


def test_a_resubmitted_frame_comes_again_with_data_in_the_place_of_the_ports() -> None:
    pair = Pair(
        program(
            declarations="header again_t { bit<64> data; }",
            headers="",
            metadata="again_t again; bit<64> data;",
            ingress="if (intrinsic.resubmit_flag == 0) { deparser.resubmit_type = 1; meta.data = 0xabcd; }"
            " else { hdr.ethernet.src = hdr.ethernet.src + 1; tm.ucast_egress_port = 2; }",
            ingress_deparser_locals="Resubmit() resubmit;",
            ingress_deparser="if (deparser.resubmit_type == 1)"
            " { resubmit.emit<again_t>({meta.data}); } packet.emit(hdr);",
        )
    )
    assert sent(pair, frame()) == [Sent(2, frame(src=3))]


def test_a_recirculation_port_leads_back_and_is_the_port_of_origin_then() -> None:
    ingress = "if (intrinsic.ingress_port == 68) { hdr.ethernet.kind = 9; tm.ucast_egress_port = 2; }"
    pair = Pair(program(ingress=ingress + " else { tm.ucast_egress_port = 68; }"))
    assert sent(pair, frame()) == [Sent(2, frame(kind=9))]


def test_a_truncated_frame_is_dropped_unless_ingress_looks_at_the_error() -> None:
    assert sent(Pair(program()), b"short") == []
    looks = "if (parsed.parser_err == PARSER_ERROR_PARTIAL_HDR) { tm.ucast_egress_port = 3; }"
    assert sent(Pair(program(ingress=looks)), b"short") == [Sent(3, b"short")]


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


def test_bypassing_egress_sends_what_the_ingress_deparser_made() -> None:
    pair = Pair(
        program(ingress="tm.ucast_egress_port = 2; tm.bypass_egress = 1;", egress="hdr.ethernet.kind = 1;")
    )
    assert sent(pair, frame()) == [Sent(2, frame())]


def test_egress_is_told_of_the_queue_and_the_length() -> None:
    egress = (
        "hdr.ethernet.src = (bit<48>)intrinsic.enq_qdepth; hdr.ethernet.kind = intrinsic.pkt_length;"
        " hdr.ethernet.dst = (bit<48>)intrinsic.deq_timedelta;"
    )
    (left,) = sent(Pair(program(egress=egress)), frame())
    # the queue of `traffic.QUEUE`: 5 packets of one cell each, 40 us
    assert left.frame == frame(dst=40_000, src=5, kind=len(frame()))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"ingress": "tm.no_such_field = 1;"}, "no_such_field"),
        ({"ingress_locals": "MathUnit<bit<32>>(MathOp_t.SQR, 0) square;"}, "0 for 'factor'"),
        ({"ingress_locals": "MathUnit<bit<64>>(MathOp_t.SQR, 1) square;"}, "a math unit of bit<64>"),
        ({"ingress_deparser": "hdr.ethernet.src = meta.unused;"}, "bit<8>"),
        ({"egress_start": "transition nowhere;"}, "unknown state 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused(parts: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        program(**parts)


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
