"""``ina counters`` and ``ina registers``: what a program counts and remembers, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from controller import connect
from controller.switches import forwarding
from tests.programs import COUNTING, copied, with_ingress
from tests.system.attached import Attached, open_switch
from tests.system.command import PATIENT, good, here, report, worker

MAC = "02:00:00:00:00:07"
TABLELESS = with_ingress("""\
    register<bit<32>>(4) last;
    apply { last.write(0, (bit<32>)s.ingress_port); }
""")


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """A switch with a program of one's own, on which a job of two ranks has summed 640 elements, once."""
    path = copied(tmp_path_factory.mktemp("copy"), *COUNTING) / "shared.p4"
    with open_switch("--program", path, "--lanes", 32) as switch:
        command = worker("exact.py", 640)
        good("run", "-np", 2, *PATIENT, *switch.options, "--slots", 64, "--window", 4, *command)
        with connect(switch.address) as controller:
            controller.install([forwarding.bridge(MAC, 1)])
        yield switch


def read(attached: Attached, *arguments: object) -> CompletedProcess[str]:
    command, *rest = arguments
    return here(command, *attached.options[:2], *rest)


def metrics(attached: Attached, *arguments: object) -> Any:
    command, *rest = arguments
    return report(command, *attached.options[:2], *rest)["metrics"]


def test_counters_are_listed_with_their_totals(attached: Attached) -> None:
    found = metrics(attached, "counters")["counters"]
    ways = found["InaIngress.ways"]
    assert ways["cells"] == 5
    assert ways["bytes"] > ways["packets"] > 0
    assert found["InaEgress.marking.seen"]["table"] == "InaEgress.marking.watched"
    assert "bytes" not in found["InaIngress.outcomes"]
    listed = read(attached, "counters").stdout
    assert "InaIngress.ways" in listed
    assert "1 entry of InaEgress.marking.watched" in listed


def test_a_counter_of_ones_own_is_read_by_the_end_of_its_name(attached: Attached) -> None:
    found = metrics(attached, "counters", "ways")
    of = found["counts"]
    assert of["2"]["packets"] >= 20, "results, of 640 elements in packets of 32"
    assert (found["cells"], found["zeros_left_out"]) == (5, 5 - len(of))
    everything = metrics(attached, "counters", "InaIngress.ways", "--all")["counts"]
    assert everything["4"] == {"packets": 0, "bytes": 0}
    assert metrics(attached, "counters", "ways", "--index", "2-3")["cells"] == 2
    shown = read(attached, "counters", "ways").stdout
    assert f"{5 - len(of)} of 5 cells are zero and left out; --all shows them" in shown


def test_cells_of_outcomes_have_the_names_of_outcomes(attached: Attached) -> None:
    found = metrics(attached, "counters", "outcomes")["counts"]
    (cell,) = (number for number, each in found.items() if each["outcome"] == "aggregated")
    row = int(cell) // 32
    assert found[cell]["row"] == row
    assert found[str(32 * row + 1)]["outcome"] == "completed"
    shown = read(attached, "counters", "outcomes").stdout
    assert re.search(rf"│ {cell} +│ +{row} │ aggregated +│", shown), shown


def test_a_direct_counter_counts_for_each_entry_and_the_default_one(attached: Attached) -> None:
    seen = metrics(attached, "counters", "seen")["counts"]
    assert list(seen) == ["default entry"]
    assert seen["default entry"]["packets"] > 0
    bridge = metrics(attached, "counters", "bridge_counter", "--all")["counts"]
    assert bridge == {
        "hdr.ethernet.dst = 0x20000000007": {"packets": 0, "bytes": 0},
        "default entry": {"packets": 0, "bytes": 0},
    }


def test_registers_are_listed_and_read(attached: Attached) -> None:
    listed = metrics(attached, "registers")["registers"]
    assert listed["InaIngress.aggregator.slot_job"] == {"cells": 8192, "bits": 16}
    assert "InaIngress.aggregator.lanes.lane_0 … 31" in read(attached, "registers").stdout
    found = metrics(attached, "registers", "slot_psn", "--index", "0-63")
    values = found["values"]
    assert len(values) + int(str(found["zeros_left_out"])) == 64
    assert max(values.values()) >= 19, "the last PSN"
    assert metrics(attached, "registers", "last_psn", "--index", "2")["values"] == {"2": max(values.values())}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("counters", "way"), 1, "the program has no counter 'way'; did you mean 'InaIngress.ways'?"),
        (
            ("registers", "x"),
            1,
            "the program has no register 'x'; it has 45 of this kind: omit the name to list all",
        ),
        (("counters", "ways", "--index", "2-9"), 2, "--index 2-9: want cells of InaIngress.ways, 0 to 4"),
        (("counters", "ways", "--index", "x"), 2, "--index 'x': want numbers and ranges, such as 1-8,12"),
        (
            ("counters", "seen", "--index", "0"),
            2,
            "--index 0: InaEgress.marking.seen has no numbered cells; it counts for the entries of table"
            " InaEgress.marking.watched",
        ),
        (("registers", "--all"), 2, "--all needs a NAME"),
    ],
)
def test_what_is_not_there_is_said(
    attached: Attached, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = read(attached, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


def test_a_switch_without_a_program_has_none(tmp_path: Path) -> None:
    with open_switch() as empty:
        for command in ("counters", "registers"):
            done = read(empty, command)
            assert done.returncode == 2
            assert "has no program loaded" in done.stderr


def test_a_program_without_tables_is_a_program(write_file: Callable[[str, str], Path]) -> None:
    tableless = write_file("remembers.p4", TABLELESS)
    with open_switch("--program", tableless) as running:
        assert metrics(running, "registers")["registers"] == {"I.last": {"cells": 4, "bits": 32}}
