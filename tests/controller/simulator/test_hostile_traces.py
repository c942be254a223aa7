"""Every format with every cell as nobody should write it: a job list or one line, and never anything else."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.policies.scheduling import BadSpec, BadTrace
from controller.simulator.traces import FORMATS, HEADERS, read
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule

CLUSTER = Cluster.uniform(2, 8)


@dataclass(frozen=True, slots=True)
class Sample:
    """A trace of one job: `header` is empty if the format has none."""

    header: str
    cells: tuple[str, ...]
    delimiter: str = ","

    @property
    def columns(self) -> list[str]:
        return self.header.split(",") if self.header else [str(number) for number in range(len(self.cells))]

    def text(self, cells: tuple[str, ...] | None = None, end: str = "\n") -> str:
        lines = [self.header] if self.header else []
        return "".join(line + end for line in [*lines, self.delimiter.join(cells or self.cells)])

    def with_cell(self, number: int, cell: str) -> tuple[str, ...]:
        return (*self.cells[:number], cell, *self.cells[number + 1 :])


SAMPLES = {
    "csv": Sample(
        "name,arrival_s,duration_s,gpus,model,storage_s,cpu_s,gpu_s,network_s,opportunistic,estimate_s,restart_s,"
        "iteration_s",
        ("a", "0", "100", "1", "m", ".1", ".1", ".1", ".1", "0", "100", "1", ".4"),
    ),
    "muri": Sample(
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority",
        ("7", "1", "0", "90", "a2c", "64", "9000", "0", "100", "40", "30", "20", "1"),
    ),
    "tiresias": Sample(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
        ("0", "1", "30", "100", "vgg19", "50", "3"),
    ),
    "philly": Sample(
        "timestamp,duration,num_gpus,gpu_time,cluster", ("2017-10-03 12:00:00", "50", "1", "1", "a")
    ),
    "helios": Sample(
        "job_id,user,vc,gpu_num,submit_time,duration,batchsize,estimate_s",
        ("1", "u", "v", "1", "2017-10-03 12:00:00", "50", "32", "60"),
    ),
    "acme": Sample(
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,duration,queue",
        ("d1", "u", "1", "1", "16", "Other", "FAILED", "2023-03-01 00:18:22+08:00", "117", "32"),
    ),
    "alibaba-2020": Sample("", ("j", "worker", "2.0", "Terminated", "5.0", "9.0", "600", "29", "50", "MISC")),
    "alibaba-2023": Sample(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time",
        ("p-1", "4000", "15258", "1", "220", "", "BE", "Running", "10", "90", "12"),
    ),
    "alibaba-2025": Sample(
        "instance_sn,role,app_name,cpu_request,gpu_request,creation_time,scheduled_time,deletion_time",
        ("instance_1", "HN", "app_0", "12", "1", "5.0", "6.0", "80.0"),
    ),
    "sacct": Sample(
        "JobID,User,Partition,State,Submit,Elapsed,AllocTRES",
        ("7", "u", "gpu", "COMPLETED", "2023-03-01T00:18:22", "1-00:00:10", "gres/gpu=1"),
    ),
    "gavel": Sample("", ("LM", "cmd", "-n", "1", "200", "3.5", "2"), "\t"),
    "synergy": Sample("", ("0", "alexnet", "0", "100", "1")),
}

EVIL = [
    "", " ", "nan", "inf", "-inf", "1e309", "1e308", "1e-320", "5e-324", "-0", "-1", "0", "1_000", "\u0663",
    "0x10", "9" * 30, "9" * 400, "9" * 5000, "true", "x" * 200_000, "\x00", "a\nb", '"', "a,b",
    "1.0000000001", "0.5", "99999999999", "1e13", "1e30", "9999-12-31 23:59:59", "0001-01-01",
    "2017-10-03T12:00:00Z", "2017-10-03 25:00", "\u202e", "[/x]", "%s{}", "\x1b[31mred", "\x07",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "simulation_throughputs.json").write_text('{"v100": {"(\'LM\', 2)": {"null": 3.0}}}')
    return tmp_path


def check(path: Path, format: str = "") -> str:
    """Read a file; return "" if its jobs are sound, or else the one line that refuses it."""
    try:
        specs = read(path, CLUSTER, format=format)
    except (BadSpec, BadTrace) as error:
        message = str(error)
        assert message.startswith(str(path))
        assert "\n" not in message
        assert len(message) < 1400
        return message.removeprefix(str(path))
    assert specs
    for spec in specs:
        assert spec.name.isprintable()
        assert 0 < spec.duration_s < 1e13
        assert 0 <= spec.arrival_s < 1e13
        assert all(math.isfinite(each) for each in (*spec.stages_s, spec.restart_s, spec.estimate_s or 0.0))
    return ""


def test_every_format_has_a_sample() -> None:
    assert SAMPLES.keys() == {*FORMATS} - {"toml", "philly-log"}


@pytest.mark.parametrize("name", SAMPLES)
def test_any_cell_may_be_anything(folder: Path, name: str) -> None:
    sample = SAMPLES[name]
    path = folder / "trace"
    for number, column in enumerate(sample.columns):
        for evil in EVIL:
            path.write_text(sample.text(sample.with_cell(number, evil)))
            refused = check(path, format=name)
            if refused and sample.header:
                assert f"column {column}:" in refused or re.match(
                    r":[123]: (\d+ cells|unexpected|field)|: no job is left: ", refused
                )


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_as_other_programs_write_it(folder: Path, name: str) -> None:
    sample = SAMPLES[name]
    path = folder / "trace"
    quoted = tuple(f'"{cell}"' for cell in sample.cells)
    header = ",".join(f'"{column}"' for column in sample.columns) if sample.header else ""
    for text in (
        sample.text(),
        "\ufeff" + sample.text(),
        sample.text(end="\r\n"),
        "\n\n" + sample.text(),
        sample.text() + "\n\n",
        Sample(header, quoted, sample.delimiter).text(),
    ):
        path.write_bytes(text.encode())
        assert check(path) == ""


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_is_cut_off_or_something_else(folder: Path, name: str) -> None:
    sample = SAMPLES[name]
    path = folder / "trace"
    for data, refused in (
        (b"", ": no jobs in it"),
        (b"\n\n\n", ": no jobs in it"),
        (sample.text().encode("utf-16"), ": cannot be read: "),
        (b"\x93\x00\xff" * 50, ": cannot be read: "),
        (b"\0" * 500, ": cannot be read: it has null"),
        (sample.text((*sample.cells, "more")).encode(), ": "),
        (sample.text(sample.cells[:-1]).encode(), ": "),
        (sample.text((*sample.cells[:-1], '"1')).encode(), ": unexpected end of data"),
    ):
        path.write_bytes(data)
        assert refused in check(path, format=name)
    if sample.header:
        path.write_text(sample.header + "\n")
        assert check(path) == ": no jobs in it"
        for number, column in enumerate(sample.columns):
            rest = [*sample.columns[:number], *sample.columns[number + 1 :]]
            cells = [*sample.cells[:number], *sample.cells[number + 1 :]]
            path.write_text(Sample(",".join(rest), tuple(cells)).text())
            assert f":1: column {column}: missing" in check(path, format=name) or column not in _required(
                name
            )
            path.write_text(Sample(f"{sample.header},{column}", (*sample.cells, "1")).text())
            assert check(path) == f":1: column {column}: there twice"


def _required(name: str) -> set[str]:
    stages = {"storage_s", "cpu_s", "gpu_s", "network_s"} if name == "csv" else set()
    return {*HEADERS[name]} | stages


def test_a_file_of_no_format_at_all(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam,\nthese are my jobs.\n")
    assert check(path).startswith(":1: unknown columns Dear Sir or Madam, ; formats that are known")
    path.write_text("x" * 200_000)
    assert check(path) == ":1: field larger than field limit (131072)"
    assert check(path, format="f" * 1000).startswith(": format 'fff")


TABLE = {
    "name": '"a"', "workers": "1", "gpus_per_worker": "1", "duration_s": "5", "arrival_s": "0",
    "model": '"m"', "stages_s": "[0.1, 0.1, 0.1, 0.1]", "priority": "0", "estimate_s": "5", "restart_s": "1",
    "iteration_s": "0.4", "batch": "1", "user": '"u"', "vc": '"v"', "deadline_s": "9", "extra": "{}",
    "compute_s": "0.1", "command": '"true"', "opportunistic": "false",
}  # fmt: skip
EVIL_TOML = [
    "nan", "inf", "-inf", "1e308", "1e309", "-1", "0", "-0.0", "1e-320", "9" * 30, "9" * 400, "9" * 5000,
    "true", "false", "[]", "{}", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", '""', '" "', '"nan"',
    '"x"', "0x10", '"\\u0000"', '"\\u001b[31m"', '"[/x]"', '"a\\nb"', "'''\nq\n'''", "[[1, 2], [3]]",
    f"[{'1,' * 5000}]", "0x" + "f" * 5000, "[0.1, 0.1, 0.1, nan]", "[0, 0, 0, 1e-320]", "{a = nan}",
    '{"\\u001b" = 1}', f'"{"x" * 5000}"',
]  # fmt: skip


def test_any_value_of_a_toml_table_may_be_anything(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    for key in TABLE:
        for evil in EVIL_TOML:
            lines = [f"{name} = {evil if name == key else value}" for name, value in TABLE.items()]
            path.write_text("\n".join(["[[job]]", *lines]))
            refused = check(path)
            at = 2 + list(TABLE).index(key)
            assert (
                not refused
                or re.match(rf":{at}: job .*\b{key}\b", refused)
                or refused == ": a number has too many digits, or brackets are too deep"
            ), (key, evil[:99], refused)


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (b"\xef\xbb\xbf[[job]]\r\nname = 'a'\r\nworkers = 1\r\nduration_s = 5\r\n", ""),
        (b"", ": no jobs; want at least one [[job]]"),
        (b"\xff\xfe[[job]]", ": cannot be read"),
        (b"\0", ": not TOML"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, ": a number has too many digits, or brackets are too deep"),
        (b"[[job]]\nworkers = 1\nworkers = 2\n", ": not TOML: Cannot overwrite a value (at line 3"),
        (
            b"[[job]]\nname = 'a'\nworkers = 1\nduration_s = 5\n[job.x]\ny = 1\n",
            ":5: job 'a': unknown key 'x'; known are ",
        ),
    ],
)
def test_toml_that_is_none_or_odd(tmp_path: Path, data: bytes, refused: str) -> None:
    path = tmp_path / "jobs.toml"
    path.write_bytes(data)
    assert check(path).startswith(refused)
    assert bool(check(path)) == bool(refused)


@pytest.mark.parametrize("name", ["trace.csv", "trace.toml"])
@pytest.mark.parametrize("option", ["--trace", "--cluster"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, name: str, option: str) -> None:
    """A pipe would be empty for whoever reads it second, and opening it could wait for ever."""
    path = tmp_path / name
    ran = schedule("simulate", option, path, "--policy", "fifo")
    assert (ran.code, ran.complaint) == (2, f"{option} {path}: No such file or directory")
    os.mkfifo(path)
    for place in (path, tmp_path, Path("/dev/null")):
        ran = schedule("simulate", option, place, "--policy", "fifo")
        assert (ran.code, ran.out) == (2, "")
        assert ran.complaint == f"{place}: cannot be read: not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_text(SAMPLES["csv"].text())
    path.chmod(0)
    assert check(path) == ": cannot be read: Permission denied"
