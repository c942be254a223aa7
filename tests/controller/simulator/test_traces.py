"""Every format with every cell as nobody should write it: a job list or one line, and never anything else."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.policies.scheduling import BadSpec, BadTrace
from controller.simulator.generate import generate
from controller.simulator.traces import FORMATS, HEADERS, neutral, read
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule

MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)
CSV = "name,arrival_s,duration_s,gpus\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param(
            "trace.csv",
            MURI + "7,4,1500,100,a2c,64,60000,0,500,400,10,2.5,1\n",
            [
                {
                    **{"name": "7", "gpus": 4, "arrival_s": 1.5, "iteration_s": 0.5, "estimate_s": 60.0},
                    **{"stages_s": (0.4, 0.01, 0.0025), "restart_s": 39.0, "opportunistic": 1},
                }
            ],
            id="muri",
        ),
        pytest.param(
            "replay",
            "0,alexnet,0.0,100,1\n1,gnmt,0.5,50,2\n",
            [{"duration_s": 60.0}, {"gpus": 2, "arrival_s": 0.5}],
            id="synergy",
        ),
        pytest.param(
            "trace.csv",
            "timestamp,duration,num_gpus,gpu_time,cluster\n"
            "2017-10-09 07:01:55,66.0,1,66,a\n2017-10-09 07:00:55,5,2,10,b\n",
            [{"vc": "b", "arrival_s": 0}, {"arrival_s": 60}],
            id="philly is sorted",
        ),
        pytest.param(
            "trace.csv",
            "job_id,user,vc,gpu_num,submit_time,duration,gmem\n"
            "1,u,v,0,2020-09-01 00:00:00,5,0\n2,u,v,8,2020-09-01 00:01:00,60,512\n",
            [{"name": "2", "gpus": 8, "arrival_s": 0, "gmem": "512"}],
            id="helios, without jobs that have no GPU",
        ),
        pytest.param(
            "trace.csv",
            "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,8,30,100,vgg19,50,3\n",
            [{"duration_s": 50.0, "iterations": 100, "gpus": 8}],
            id="tiresias",
        ),
        pytest.param(
            "trace.csv",
            "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,"
            "start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
            "dlc1,u1,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
            "2023-05-17 11:01:26+00:00,,,18,10.0,1152.0\n"
            "dlc2,u2,1,8,96,1000,100.0,Pretrain,COMPLETED,2023-05-17 11:01:58+00:00,"
            "2023-05-17 11:02:00+00:00,2023-05-17 11:03:00+00:00,,,60,2.0,480.0\n",
            [
                {"name": "dlc1", "gpus": 64, "duration_s": 18},
                {"arrival_s": 60, "user": "u2", "state": "COMPLETED"},
            ],
            id="acme",
        ),
        pytest.param(
            "trace.csv",
            "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,"
            "memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,"
            "scheduled_time,deletion_time\n"
            "i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,\n"
            "i1,HN,app_0,12,12,2,2,25,25,120.0,120.0,640.0,800.0,8,70.0,71.0,91.0\n",
            [{"name": "i1", "gpus": 2, "duration_s": 20, "arrival_s": 0}],
            id="alibaba-2025",
        ),
    ],
)
def test_jobs_of_a_format(
    write_file: Callable[[str, str], Path], name: str, text: str, expected: list[dict[str, object]]
) -> None:
    for job, fields in zip(read(write_file(name, text)), expected, strict=True):
        found = {**job.extra, **{each.name: getattr(job, each.name) for each in dataclasses.fields(job)}}
        assert {key: found.get(key, getattr(job, key, None)) for key in fields} == fields


def test_gavel(tmp_path: Path, write_file: Callable[[str, str], Path]) -> None:
    line = "LM\tcmd\t-n\t1\t200\t3.5\t2\n"
    (tmp_path / "simulation_throughputs.json").write_text(
        json.dumps({"v100": {"('LM', 1)": {"null": 5.0}, "('LM', 2)": {"null": 8.0}}})
    )
    (job,) = read(write_file("x.trace", line))
    assert (job.duration_s, job.gpus, job.arrival_s) == (25.0, 2, 3.5)
    with pytest.raises(BadTrace, match=r"x\.trace:1: column type: 'XX' is not in"):
        read(write_file("x.trace", line.replace("LM", "XX")))


def test_own_format_comes_back_as_it_was_written(tmp_path: Path) -> None:
    jobs = generate(50, Cluster.uniform(2, 8), seed=3)
    path = tmp_path / "own.csv"
    neutral.write(path, jobs)
    back = read(path)
    for one, other in zip(jobs, back, strict=True):
        assert (one.name, one.arrival_s, one.gpus, one.stages_s) == (
            other.name, other.arrival_s, other.gpus, other.stages_s,
        )  # fmt: skip
        assert one.iterations == pytest.approx(other.iterations)
        assert (one.restart_s, one.estimate_s, one.model) == (other.restart_s, other.estimate_s, other.model)


@pytest.mark.parametrize("column", ["deadline", "Deadline_S", "deadline_sec", "deadline (s)", "deadlin_s"])
def test_a_column_called_almost_as_a_known_one_is_refused(
    write_file: Callable[[str, str], Path], column: str
) -> None:
    with pytest.raises(BadTrace, match="did you mean 'deadline_s'") as caught:
        read(write_file("trace.csv", f"name,arrival_s,duration_s,gpus,{column}\n1,0,5,1,9\n"))
    assert caught.value.column == column
    (job,) = read(write_file("trace.csv", "name,arrival_s,duration_s,gpus,mode,cpus\n1,0,5,1,x,9\n"))
    assert job.extra == {"mode": "x", "cpus": "9"}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (CSV.encode("utf-16"), "it is UTF-16"),
        (CSV.encode("utf-16-le"), "it has null characters"),
        (b"PK\x03\x04\xff", r"a workbook \(.xlsx\)"),
        (b"\x1f\x8b\xff", "compressed by gzip"),
        (CSV.encode() + b"caf\xe9,0,1,1\n", r"line 2 is not UTF-8 \(byte 0xe9\)"),
    ],
)
def test_what_is_no_text_is_called_by_its_name(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "trace.csv").write_bytes(data)
    with pytest.raises(BadTrace, match=f"cannot be read: .*{what}.*; it must be text in UTF-8"):
        read(tmp_path / "trace.csv")


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"


def test_what_a_published_log_leaves_out_is_said(
    write_file: Callable[[str, str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        "1,ua,va,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:01,2020-04-01 00:00:09,8,1",
        "2,ua,va,8,4,1,CANCELLED,2020-04-01 00:00:02,2020-04-01 00:00:03,2020-04-01 00:00:03,0,1",
        "4,ub,vb,2,4,1,FAILED,2020-04-01 00:01:00,2020-04-01 00:01:00,2020-04-01 00:02:00,60,0",
        "3,ub,vb,1,4,1,COMPLETED,2020-04-01 00:00:30,2020-04-01 00:01:00,2020-04-01 00:02:00,60,30",
        "5,uc,va,0,4,1,COMPLETED,2020-04-01 00:03:00,2020-04-01 00:03:01,2020-04-01 00:03:09,8,1",
    ]
    path = write_file("trace.csv", HELIOS + "\n".join(rows))
    with caplog.at_level(logging.WARNING):
        jobs, again = read(path), read(path)
    assert [(job.name, job.gpus, job.arrival_s, job.vc) for job in jobs] == [
        ("3", 1, 0, "vb"),
        ("4", 2, 30, "vb"),
    ]
    assert again == jobs
    assert caplog.messages == [f"{path}: read 2 jobs; left out: 2 without a GPU, 1 that took no time"]
    with pytest.raises(BadTrace, match="no job is left: 1 without a GPU, 1 that took no time"):
        read(write_file("trace.csv", HELIOS + "\n".join(rows[:2])))


def test_phillys_own_log(write_file: Callable[[str, str], Path], caplog: pytest.LogCaptureFixture) -> None:
    def job(name: str, *attempts: tuple[str | None, str | None, int]) -> dict[str, object]:
        tried = [
            {
                "start_time": start,
                "end_time": end,
                "detail": [{"ip": "m1", "gpus": [f"gpu{n}" for n in range(gpus)]}],
            }
            for start, end, gpus in attempts
        ]
        found = {"status": "Pass", "vc": "v1", "jobid": name, "user": "u", "attempts": tried}
        return found | {"submitted_time": "2017-10-07 01:00:00"}

    late = job("late", ("2017-10-07 02:00:00", "2017-10-07 02:00:10", 1)) | {
        "submitted_time": "2017-10-07 01:30:00"
    }
    twice = job(
        "twice",
        ("2017-10-07 01:00:10", "2017-10-07 01:01:10", 8),
        ("2017-10-07 01:02:00", "2017-10-07 01:02:30", 4),
    )
    running = job("running", ("2017-10-07 01:00:10", None, 8))
    path = write_file("cluster_job_log", json.dumps([late, twice, running, job("never")]))
    jobs = read(path)
    assert [(each.name, each.gpus, each.arrival_s, each.duration_s) for each in jobs] == [
        ("twice", 4, 0, 90.0),
        ("late", 1, 1800, 10.0),
    ]
    assert (jobs[0].vc, jobs[0].user, jobs[0].extra["status"]) == ("v1", "u", "Pass")
    assert "1 without a start or an end, 1 without a GPU" in caplog.text
    assert read(write_file("log.json", path.read_text())) == jobs
    with pytest.raises(BadTrace, match="column attempts: missing in job 1"):
        read(
            write_file(
                "trace.csv",
                json.dumps([{**late, "attempts": None} | {"jobid": "a"}]).replace('"attempts": null, ', ""),
            )
        )
    with pytest.raises(BadTrace, match="column attempts: job 1: want start_time, end_time and detail"):
        read(write_file("trace.csv", json.dumps([late | {"attempts": [{"start_time": "x"}]}])))
    with pytest.raises(BadTrace, match="not JSON"):
        read(write_file("trace.csv", "[{"))


def test_alibaba_2020_without_a_header(write_file: Callable[[str, str], Path]) -> None:
    rows = (
        "j1,ps,1.0,Terminated,100.0,400.0,600.0,29.3,,\n"
        "j1,worker,3.0,Terminated,110.0,400.0,600.0,29.3,50.0,T4\n"
        "j1,evaluator,1.0,Terminated,105.0,300.0,600.0,29.3,100.0,T4\n"
        "j2,tensorflow,1.0,Failed,50.0,80.0,600.0,29.3,25.0,MISC\n"
        "j3,tensorflow,1.0,Running,90.0,,600.0,29.3,100.0,V100\n"
    )
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    for text in (rows, header + rows):
        jobs = read(write_file("trace.csv", text))
        assert [(each.name, each.gpus, each.arrival_s, each.duration_s) for each in jobs] == [
            ("j2", 1, 0, 30),
            ("j1", 3, 55, 295),  # two GPUs for three halves, and one
        ]


def test_alibaba_2023(write_file: Callable[[str, str], Path], caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
        "p0,88000,327680,8,1000,,Burstable,Succeeded,1000,5000,1010\n"
        "p1,4000,15258,1,220,V100M16|V100M32,BE,Running,1500,1600,1500\n"
        "p2,4000,15258,1,1000,,LS,Pending,1700,1800,\n"
        "p3,4000,15258,0,0,,LS,Running,1700,1800,1700\n"
    )
    first, second = read(write_file("trace.csv", text))
    assert (first.gpus, first.duration_s, second.gpus, second.arrival_s) == (8, 3990, 1, 500)
    assert "1 without a start or an end, 1 without a GPU" in caplog.text


def test_sacct(write_file: Callable[[str, str], Path]) -> None:
    lines = [
        "JobID|JobName|User|Partition|State|Submit|Start|End|Elapsed|AllocTRES",
        "100|train|ann|gpu|COMPLETED|2024-05-01T10:00:00|x|x|1-02:00:05|gres/gpu:h=4,gres/gpu=4",
        "100.batch|batch||||2024-05-01T10:00:00|x|x|1-02:00:05|cpu=8,gres/gpu=4",
        "101_2|s|bob|gpu|CANCELLED by 1000|2024-05-01T09:59:00|x|x|00:01:30|gres/gpu:a100=2,gres/gpu:t4=1",
        "102|cpu|bob|cpu|COMPLETED|2024-05-01T09:00:00|x|x|00:01:30|cpu=4",
        "103|wait|bob|gpu|PENDING|2024-05-01T09:00:00|Unknown|Unknown|00:00:00|gres/gpu=1",
    ]
    expected = [("101_2", 3, 0.0, 90.0), ("100", 4, 60.0, 93605.0)]
    quoted = ['"' + line.replace("|", '","') + '"' for line in lines]
    for text in ("\n".join(lines), "|\n".join([*lines, ""]), "\n".join(quoted)):
        jobs = read(write_file("trace.csv", text))
        assert [(each.name, each.gpus, each.arrival_s, each.duration_s) for each in jobs] == expected
    assert (jobs[0].user, jobs[0].vc) == ("bob", "gpu")
    with pytest.raises(BadTrace, match="missing; the format seems to be 'sacct'") as caught:
        read(write_file("trace.csv", "JobIDRaw|Submit|State|ElapsedRaw\n1|2024-05-01T10:00:00|COMPLETED|5\n"))
    assert caught.value.column == "AllocTRES|ReqTRES|AllocGRES|ReqGRES"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("job_id,when,size", "unknown columns job_id, when, size; .* muri: job_id,num_gpu,.*sacct: JobID"),
        (
            "pod_id,workload_id,gpu_request,duration_hours",
            "v2026 summary: it does not say when its jobs arrive",
        ),
        ("job_name,inst_id,user,status,start_time,end_time", "their GPUs are in pai_task_table"),
        ("name;arrival_s;duration_s;gpus", "cells are separated by ';'; it must be ','"),
        ("job_id,user,vc,gpu_num,submit_time", "column duration: missing; the format seems to be 'helios'"),
    ],
)
def test_a_file_of_no_known_format_is_told_so(
    write_file: Callable[[str, str], Path], header: str, said: str
) -> None:
    with pytest.raises(BadTrace, match=said):
        read(write_file("trace.csv", header + "\n" + "1," * header.count(",") + "1\n"))


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
            path.write_text(sample.text((*sample.cells[:number], evil, *sample.cells[number + 1 :])))
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


def test_a_file_of_no_format_at_all(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("letter.txt", "Dear Sir or Madam,\nthese are my jobs.\n")
    assert check(path).startswith(
        ":1: unknown columns Dear Sir or Madam, ; the known formats have the columns"
    )
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
def test_a_file_that_may_not_be_read(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("secret.csv", SAMPLES["csv"].text())
    path.chmod(0)
    assert check(path) == ": cannot be read: Permission denied"
