"""Logs of real runs, for what made them slow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bmv2_topos.trace import LogError, explain, read_file, read_run, unseen
from bmv2_topos.trace.runs import of_run

START = {
    "event": "start",
    "time": 9.0,
    "job": 7,
    "name": "a",
    "workers": 2,
    "ports": ["s1/1", "s2/4"],
    "server": "s1/9",
}


def collective(rank: int, number: int, end: float, took: float) -> dict[str, object]:
    fields = {"event": "collective", "job": 7, "error": None}
    return {**fields, "rank": rank, "number": number, "time": end, "time_s": took}


def test_a_log_tells_who_was_where_and_summed_what_when() -> None:
    broken = collective(1, 1, 13.0, 0.5) | {"error": "PeerLost"}
    facts, sums = of_run([START, collective(0, 0, 11.0, 1.0), collective(1, 0, 11.5, 0.25), broken])
    assert [(job.name, job.workers, job.server_port) for job in facts] == [
        ("a", (("s1", 1), ("s2", 4)), ("s1", 9))
    ]
    assert facts[0].start_ns == 10_000_000_000
    assert [(one.rank, one.begin_ns, one.end_ns) for one in sums] == [
        (0, 10_000_000_000, 11_000_000_000),
        (1, 11_250_000_000, 11_500_000_000),
    ]
    assert unseen(facts, [("s1", 1), ("s1", 4)]) == ["s2/4"]


def test_a_rank_that_calls_late_is_a_straggler() -> None:
    lines = [START, *(collective(rank, 0, 11.0, 1.0) for rank in (0, 1))]
    lines += [collective(0, 1, 12.0, 0.9), collective(1, 1, 12.01, 0.11)]
    facts, sums = of_run(lines)
    _, late = explain([], sums, facts)
    assert late.words().startswith("straggler")
    assert "rank 1 (s2 port 4), 800,000 µs late" in late.words()


@pytest.mark.parametrize("text", ["no json", "[1]", '{"event": "start"}', json.dumps(START)[:-2]])
def test_what_is_no_log_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(LogError, match=r"x\.log: not the log of a run \(ina run --log"):
        read_run(tmp_path / "x.log")


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"x\.log: No such file"):
        read_run(tmp_path / "x.log")


def test_files_of_bmv2_tell_port_and_direction(tmp_path: Path) -> None:
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    record = bytes.fromhex("01000000020000000400000004000000") + b"abcd"
    for direction, inbound in (("in", True), ("out", False)):
        file = tmp_path / f"s1-eth3_{direction}.pcap"
        file.write_bytes(header + record)
        (found,) = read_file(file)
        assert (found.place, found.inbound, found.time_ns) == ("s1/3", inbound, 1_000_002_000)
