"""Captures of ports: what the engine records, and the files of a switch that runs."""

from __future__ import annotations

import itertools
import logging
import random
import resource
import time
from collections import Counter
from pathlib import Path

import pytest

from softswitch import load
from softswitch.engine.capture_files import CaptureFiles, CaptureTo
from softswitch.engine.pcapng import CaptureSettings, file_header, packet_block
from softswitch.engine.ports import Impairments, MemoryPort, PortError, PortImpairments
from softswitch.engine.switch import Switch
from tests.programs import p4src_program
from tests.softswitch.script_program import (
    digest,
    frame,
    have_compiler,
    load_script,
    scripted,
)

needs_compiler = pytest.mark.skipif(not have_compiler, reason="no C compiler")
FAULTY = Impairments(
    loss=0.1, corrupt=0.1, duplicate=0.1, reorder=0.1, delay_s=3e-6, rate_bps=2e8, queue_packets=4
)
Seen = tuple[int, bytes, str, int]


def read(records: bytes, tmp_path: Path, snap: int = 65535) -> list[Seen]:
    """Read records by scapy: time, frame, comment, direction (1: in, 2: out)."""
    from scapy.utils import RawPcapNgReader

    path = tmp_path / "read.pcapng"
    path.write_bytes(file_header("s1/1", snap) + records)
    with RawPcapNgReader(str(path)) as reader:
        return [
            (
                (meta.tshigh << 32) + meta.tslow,
                data,
                "".join(part.decode() for part in meta.comments or []),
                meta.direction,
            )
            for data, meta in reader
        ]


def played(engine: str, seed: int, capacity: int = 1 << 20) -> tuple[Switch, list[bytes]]:
    """Random traffic over faulty links, and what was captured at each port."""
    draw = random.Random(seed)
    links = {port: PortImpairments(rx=FAULTY, tx=FAULTY) for port in range(3)}
    ports = {port: MemoryPort() for port in range(3)}
    switch = scripted(engine, ports, seed=seed, impairments=links, loaded=False)
    switch.capture(CaptureSettings(epoch_ns=7 * 10**18, snap=48, capacity=capacity))
    switch.inject(0, [frame("U", 1)] * 4, 0)  # before there is a program
    switch.advance(1000)
    load_script(switch, engine)
    switch.set_multicast_group(1, [(0, 0), (1, 1), (2, 2)])
    now = 1001
    for _ in range(60):
        now += draw.randrange(4)
        frames = [
            frame(draw.choice("UMD"), 1, size=draw.randrange(64, 200)) for _ in range(draw.randrange(12))
        ]
        switch.inject(draw.randrange(3), frames, now)
    switch.inject(0, [frame("M", 1)] * 30, now)  # more than any queue holds
    switch.advance(now + 1_000_000)
    return switch, [switch.captured(port)[0] for port in range(3)]


@needs_compiler
def test_random_traffic_is_recorded_as_it_always_was() -> None:
    records = [played("compiled", seed)[1] for seed in range(5)]
    assert all(map(any, records))
    assert records == [played("interpreter", seed)[1] for seed in range(5)]
    assert digest(records) == "ef37032bd3bd883c", "was compared with an engine in Python"


@needs_compiler
def test_every_packet_of_the_statistics_is_recorded_by_its_fate(tmp_path: Path) -> None:
    switch, records = played("compiled", 2)
    times = []
    for port, found in enumerate(records):
        fates = Counter[tuple[int, str]]()
        for time_ns, kept, comment, direction in read(found, tmp_path, 48):
            words = dict(word.split("=") for word in comment.split())
            fates[direction, words.get("fate", "")] += 1
            times.append(time_ns)
            assert len(kept) == 48
        counted = switch.statistics(port)
        for direction, way, reasons in (
            (1, "rx", ("lost", "corrupted", "queue_full", "no_program")),
            (2, "tx", ("lost", "corrupted", "duplicated", "queue_full")),
        ):
            for reason in reasons:
                assert fates[direction, reason] == getattr(counted, f"{way}_{reason}")
        gone = sum(fates[1, reason] for reason in ("lost", "corrupted", "queue_full", "no_program"))
        assert fates[1, ""] == counted.rx_packets + counted.rx_duplicated - gone
        assert fates[2, ""] + 2 * fates[2, "duplicated"] == counted.tx_packets
    assert len(set(times)) == len(times), "no two records of a switch have the same time"
    everywhere = [switch.statistics(port) for port in range(3)]
    assert all(
        sum(getattr(port, name) for port in everywhere)
        for name in ("rx_lost", "rx_corrupted", "rx_queue_full", "rx_no_program")
    )
    assert all(
        sum(getattr(port, name) for port in everywhere)
        for name in ("tx_lost", "tx_corrupted", "tx_duplicated", "tx_queue_full")
    )
    assert min(times) >= 7 * 10**18


@needs_compiler
def test_what_finds_no_room_is_counted() -> None:
    switch, few = played("compiled", 1, capacity=2000)
    whole = played("compiled", 1)[1]
    for port in range(3):
        assert 0 < len(few[port]) <= 2000 < len(whole[port])
        assert switch.captured(port) == (b"", switch.captured(port)[1])
        assert switch.captured(port)[1] > 0


@needs_compiler
@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_what_the_program_says_of_a_packet_is_noted(backend: str, tmp_path: Path) -> None:
    program = p4src_program("shared", LANES=32, SLOTS=16)
    with Switch({1: MemoryPort()}) as switch:
        switch.load(load(program, backend=backend))  # type: ignore[arg-type]
        switch.capture(CaptureSettings(notes=("outcome", "rank_count", "no_such_field")))
        switch.inject(1, [bytes(60)], 5)
        ((time_ns, data, comment, direction),) = read(switch.captured(1)[0], tmp_path)
    assert (time_ns, data, direction) == (5000, bytes(60), 1)
    assert comment == "outcome=0 rank_count=0"


def test_a_record_made_in_python_is_read_as_it_was_meant(tmp_path: Path) -> None:
    record = packet_block(b"\1" * 61, 2**40 + 3, inbound=False, comment="fate=lost", snap=60)
    assert read(record, tmp_path, 60) == [(2**40 + 3, b"\1" * 60, "fate=lost", 2)]


@pytest.mark.parametrize("wrong", [{"notes": ("x" * 32,)}, {"notes": ("a",) * 9}, {"snap": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="want"):
        CaptureSettings(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------ files


def running() -> Switch:
    switch = Switch({0: MemoryPort(), 1: MemoryPort()})
    load_script(switch)
    return switch


@needs_compiler
def test_a_switch_has_one_file_for_each_port(tmp_path: Path) -> None:
    before = time.time_ns()
    with running() as switch, CaptureFiles(switch, CaptureTo(folder=tmp_path / "new" / "folder", name="s7")):
        switch.inject(0, [frame("U", 1, tag=9)] * 3)
    from scapy.utils import RawPcapNgReader

    for port, direction in ((0, 1), (1, 2)):
        with RawPcapNgReader(str(tmp_path / "new" / "folder" / f"s7-port{port}.pcapng")) as reader:
            found = [meta for _, meta in reader]
            assert [meta.direction for meta in found] == [direction] * 3
            assert found[0].ifname == f"s7/{port}".encode()
            for meta in found:
                assert before <= (meta.tshigh << 32) + meta.tslow <= time.time_ns()


@needs_compiler
def test_times_are_right_though_the_processor_was_lost_between_two_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, time_ns = itertools.count(), time.time_ns

    def look() -> int:
        found = time_ns()
        if not next(looks):
            time.sleep(0.05)
        return found

    with running() as switch:
        monkeypatch.setattr(time, "time_ns", look)
        with CaptureFiles(switch, CaptureTo(folder=tmp_path)):
            before = time_ns()
            switch.inject(0, [frame("U", 1)])
    header = len(file_header("s1/0", 65535))
    (found,) = read((tmp_path / "s1-port0.pcapng").read_bytes()[header:], tmp_path)
    assert before <= found[0] <= time_ns()


@needs_compiler
def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with running() as switch, pytest.raises(OSError, match="file"):
        CaptureFiles(switch, CaptureTo(folder=tmp_path / "file"))


@needs_compiler
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this kernel has no /dev/full")
def test_a_capture_for_which_the_disk_is_full_at_once_names_its_file(tmp_path: Path) -> None:
    place = tmp_path / "s1-port1.pcapng"
    place.symlink_to("/dev/full")
    with running() as switch, pytest.raises(OSError, match="No space left on device") as caught:
        CaptureFiles(switch, CaptureTo(folder=tmp_path))
    assert caught.value.filename == str(place)


def test_a_file_keeps_to_its_limit_and_holds_whole_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running() as switch, CaptureFiles(switch, CaptureTo(folder=tmp_path, limit=5000)) as files:
        for _ in range(20):
            switch.inject(0, [frame("U", 1)] * 10)
            files.write()
        assert len(switch.drain(1)) == 200, "the switch goes on"
    whole = (tmp_path / "s1-port1.pcapng").read_bytes()
    assert 4000 < len(whole) <= 5000
    header = len(file_header("s1/1", 65535))
    assert len(read(whole[header:], tmp_path)) % 10 == 0
    assert caplog.messages
    assert all("--pcap-limit" in message for message in caplog.messages)
    assert len(caplog.messages) == 2, "each port says it once"


@needs_compiler
def test_a_full_disk_ends_the_capture_and_not_the_switch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with running() as switch, CaptureFiles(switch, CaptureTo(folder=tmp_path)) as files:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
            for _ in range(20):
                switch.inject(0, [frame("U", 1)] * 10)
                files.write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(switch.drain(1)) == 200
    whole = (tmp_path / "s1-port1.pcapng").read_bytes()
    assert len(read(whole[len(file_header("s1/1", 65535)) :], tmp_path)) > 10
    assert len([message for message in caplog.messages if "the switch goes on" in message]) == 2


@needs_compiler
def test_what_came_too_fast_is_told_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    to = CaptureTo(folder=tmp_path, waiting=300)
    with running() as switch, caplog.at_level(logging.WARNING), CaptureFiles(switch, to):
        switch.inject(0, [frame("U", 1)] * 50)
    assert any("came too fast" in message for message in caplog.messages)


def test_only_ports_that_are_there_have_captures() -> None:
    with Switch({0: MemoryPort()}) as switch, pytest.raises(PortError, match="no port 5"):
        switch.captured(5)
