"""``ina trace``, ``ina sim --explain``: JSON and refusals; what people see is tested with docs/tracing.md."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.trace.captures import CaptureError
from ina.cli.errors import USAGE, Failure
from ina.cli.trace import trace
from tests.system.command import ROOT, here

JOBS = ROOT / "examples" / "three_jobs.toml"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    done = here(
        *("sim", JOBS, "--iterations", 1, "--slots", 16, "--loss", 0.01),
        *("--pcap", folder, "--explain", "--json"),
    )
    assert done.returncode == 0, done.stderr
    for job in json.loads(done.stdout)["jobs"].values():
        (told,) = job["explained"]
        assert sum(told["spent_s"].values()) == pytest.approx(told["time_s"])
        assert told["time_s"] == pytest.approx(job["iteration_s"][0])
    return folder


def told(capsys: pytest.CaptureFixture[str], *captures: Path, **options: Any) -> Any:
    trace(list(captures), **options).print(json=True)
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
        ({"job": 1, "psn": 4_000_000}, 1, "--psn 4000000: not captured of job 1; want 0 to"),
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
    with pytest.raises(Failure, match="the captures hold no slots"):
        trace([simulated / "h1.pcapng"], slots=True)


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = here("sim", JOBS, "--iterations", 1, "--pcap", tmp_path / "file")
    assert (done.returncode, done.stderr) == (2, f"ina: --pcap {tmp_path / 'file'}: not a directory\n")
