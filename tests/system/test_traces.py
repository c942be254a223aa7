"""Captures of runs and simulations, and what ``ina trace`` tells of them; see docs/guides/tracing.md, too."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.trace.captures import CaptureError
from ina.cli.command import USAGE, Failure
from ina.cli.declared import print_reply
from ina.cli.trace import trace
from tests.system.command import ROOT, good, here, refused, report

# --------------------------------------------------------------------- ``ina trace``, ``ina sim --exp


JOBS = ROOT / "examples" / "three_jobs.toml"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    done = good(
        *("sim", JOBS, "--iterations", 1, "--slots", 16, "--loss", 0.01),
        *("--pcap", folder, "--explain", "--json"),
    )
    for job in json.loads(done.stdout)["jobs"].values():
        (told,) = job["explained"]
        assert sum(told["spent_s"].values()) == pytest.approx(told["time_s"])
        assert told["time_s"] == pytest.approx(job["iteration_s"][0])
    return folder


def told(capsys: pytest.CaptureFixture[str], *captures: Path, **options: Any) -> Any:
    print_reply(trace(list(captures), **options), json=True)
    return json.loads(capsys.readouterr().out)


def test_numbers_are_there_as_json(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = told(capsys, simulated)["jobs"]
    assert set(seen) == {"1", "2", "3"}
    life = told(capsys, simulated, job=2, psn=seen["2"]["lost_psns"][0])["metrics"]
    assert life["missing"] == []
    assert "lost" in {step["fate"] for step in life["steps"]}
    assert life["steps"][0]["kind"] == "gradient"
    slots = told(capsys, simulated, slots=True, top=2)["metrics"]["slots"]
    assert len(slots) == 2
    assert slots[0]["attempts"]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"psn": 1}, USAGE, "several jobs were captured: 1, 2, 3; give one as --job"),
        ({"job": 9}, USAGE, "--job 9: want one of 1, 2, 3"),
        ({"job": 1, "psn": 4_000_000}, 1, "--psn 4000000: not in captures of job 1; want 0 to"),
        ({"slots": True, "psn": 1}, USAGE, "--slots and --psn are mutually exclusive"),
    ],
)
def test_what_is_not_there_is_one_error(
    simulated: Path, options: dict[str, Any], status: int, said: str
) -> None:
    with pytest.raises(Failure) as failed:
        trace([simulated], **options)
    assert failed.value.exit_code == status
    assert said in str(failed.value)


def test_captures_that_are_none_or_of_others_are_one_error(tmp_path: Path, simulated: Path) -> None:
    with pytest.raises(CaptureError, match="not a capture file"):
        trace([ROOT / "README.md"])
    other = tmp_path / "other.pcap"
    other.write_bytes(struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1, 0, 0, 60, 60) + bytes(60))
    with pytest.raises(Failure, match="no INA packets"):
        trace([other])
    with pytest.raises(Failure, match="the captures show no slots"):
        trace([simulated / "h1.pcapng"], slots=True)


# --------------------------------------------------------------------- what made a real run slow, fro


STEPS = {
    "iterations": 2,
    "tensors": [3000],
    "compute_s": 0.002,
    "straggler": {"rank": 1, "compute_s": 1.0},
}


def test_captures_and_log_of_a_run_name_its_straggler(tmp_path: Path) -> None:
    captures, log = tmp_path / "captures", tmp_path / "run.log"
    worker = [sys.executable, "-P", "-m", "hostlib.demos.steps", json.dumps(STEPS)]
    shape = ["single-switch:2", "--runner", "loopback", "--rate", 0, "--lanes", 32, "--slots", 64]
    good("topo", "run", *shape, "--pcap", captures, "--log", log, "--", *worker)

    found = report("trace", captures, "--explain", log)
    ((_, job),) = found["jobs"].items()
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    # where ranks agree on a sum they wait for each other; how long is a matter of both
    agreed = {line["number"] for line in logged if "(asynchronous" in line.get("what", "")}
    steps: list[dict[str, Any]] = [each for each in job["explained"] if each["iteration"] in agreed]
    assert len(steps) == 2
    for each in steps:
        assert each["causes"][0] == "straggler"
        assert "rank 1 (s1 port 2)" in each["words"]
    lines = here("trace", captures, "--explain", log).stdout
    assert "straggler" in lines

    (captures / "s1-port2.pcapng").unlink()
    said = refused("trace", captures, "--explain", log, status=1)
    assert f"no captures of job {logged[0]['job']} at s1/2, where the workers are" in said


# --------------------------------------------------------------------- ``--pcap`` of ``ina switch`` a


WORKER = """
import numpy, hostlib
hostlib.init()
hostlib.allreduce(numpy.ones(2000, numpy.float32))
hostlib.shutdown()
"""


def run(folder: Path, *options: str) -> str:
    done = good("run", "-np", "2", "--program", "shared", "--lanes", "32", *options, "--pcap", str(folder),
               "--", sys.executable, "-P", "-c", WORKER)  # fmt: skip
    return done.stderr


def test_a_run_leaves_what_passed_the_ports_of_its_switches(tmp_path: Path) -> None:
    from scapy.utils import rdpcap

    from hostlib.scapy_ina import Ina

    assert "pcap" not in run(tmp_path / "captures", "--pcap-snap", "70")
    files = sorted((tmp_path / "captures").iterdir())
    assert [file.name for file in files] == [f"s1-port{port}.pcapng" for port in (1, 2, 3)]
    for file in files[:2]:
        packets = [packet[Ina] for packet in rdpcap(str(file))]
        assert {packet.kind for packet in packets} >= {1, 2}
        assert all(len(packet) <= 70 - 42 for packet in packets)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--pcap", "{file}"), 2, "--pcap {file}: not a directory"),
        (("--pcap", "{folder}", "--pcap-limit", "much"), 2, "'much' is not a size"),
        (("--pcap", "{folder}", "--switch", "grpc://127.0.0.1:1"), 2, "give --pcap to 'ina switch'"),
    ],
)
def test_captures_that_cannot_be_are_one_error_and_leave_no_folder(
    options: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    folder = tmp_path / "folder"
    given = [option.format(file=file, folder=folder) for option in options]
    errors = refused("run", "-np", "2", *given, "--", "true", status=status)
    assert said.format(file=file) in errors
    assert len(errors.splitlines()) == 1
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "said"), [(("--pcap-name", "a/b"), "a/b"), (("--pcap-notes", "n" * 40), "31 bytes")]
)
def test_a_switch_refuses_names_that_cannot_be(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = here("switch", "--port", "1=udp:0:1", "--pcap", str(tmp_path), *options, status=2)
    assert said in done.stderr
