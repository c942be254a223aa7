"""``--pcap`` of ``ina switch`` and ``ina run``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.system.command import here, ina

WORKER = """
import numpy, hostlib
hostlib.init()
hostlib.allreduce(numpy.ones(2000, numpy.float32))
hostlib.shutdown()
"""


def run(folder: Path, *options: str) -> str:
    done = here("run", "-np", "2", "--program", "shared", "--lanes", "32", *options, "--pcap", str(folder),
               "--", sys.executable, "-P", "-c", WORKER)  # fmt: skip
    assert done.returncode == 0, done.stderr
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
        (("--pcap", "{folder}", "--switch", "grpc://127.0.0.1:1"), 2, "give it to 'ina switch'"),
    ],
)
def test_captures_that_cannot_be_are_one_error_and_leave_no_folder(
    options: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    folder = tmp_path / "folder"
    given = [option.format(file=file, folder=folder) for option in options]
    done = here("run", "-np", "2", *given, "--", "true")
    assert done.returncode == status
    assert said.format(file=file) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "said"), [(("--pcap-name", "a/b"), "a/b"), (("--pcap-notes", "n" * 40), "31 bytes")]
)
def test_a_switch_refuses_names_that_cannot_be(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = ina("switch", "--port", "1=udp:0:1", "--pcap", str(tmp_path), *options)
    assert done.returncode == 2
    assert said in done.stderr
