from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.scheduling import BadTrace
from controller.simulator.generate import generate
from controller.simulator.traces import neutral, read
from controller.vocabulary import Cluster

MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)
CSV = "name,arrival_s,duration_s,gpus\n"


def written(tmp_path: Path, text: str, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_muri(tmp_path: Path) -> None:
    (job,) = read(written(tmp_path, MURI + "7,4,1500,100,a2c,64,60000,0,500,400,10,2.5,1\n"))
    assert (job.name, job.gpus, job.arrival_s, job.iteration_s, job.estimate_s) == ("7", 4, 1.5, 0.5, 60.0)
    assert job.stages_s == (0.4, 0.01, 0.0025)
    assert (job.restart_s, job.opportunistic) == (39.0, 1)


def test_synergy(tmp_path: Path) -> None:
    first, second = read(written(tmp_path, "0,alexnet,0.0,100,1\n1,gnmt,0.5,50,2\n", "replay"))
    assert (first.duration_s, second.gpus, second.arrival_s) == (60.0, 2, 0.5)


def test_philly_is_sorted(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66,a\n2017-10-09 07:00:55,5,2,10,b\n"
    )
    first, second = read(written(tmp_path, text))
    assert (first.vc, first.arrival_s, second.arrival_s) == ("b", 0, 60)


def test_helios_leaves_out_jobs_without_a_gpu(tmp_path: Path) -> None:
    text = (
        "job_id,user,vc,gpu_num,submit_time,duration,gmem\n"
        "1,u,v,0,2020-09-01 00:00:00,5,0\n2,u,v,8,2020-09-01 00:01:00,60,512\n"
    )
    (job,) = read(written(tmp_path, text))
    assert (job.name, job.gpus, job.arrival_s, job.extra["gmem"]) == ("2", 8, 0, "512")


def test_gavel(tmp_path: Path) -> None:
    line = "LM\tcmd\t-n\t1\t200\t3.5\t2\n"
    (tmp_path / "simulation_throughputs.json").write_text(
        json.dumps({"v100": {"('LM', 1)": {"null": 5.0}, "('LM', 2)": {"null": 8.0}}})
    )
    (job,) = read(written(tmp_path, line, "x.trace"))
    assert (job.duration_s, job.gpus, job.arrival_s) == (25.0, 2, 3.5)
    with pytest.raises(BadTrace, match=r"x\.trace:1: column type: 'XX' is not in"):
        read(written(tmp_path, line.replace("LM", "XX"), "x.trace"))


def test_tiresias(tmp_path: Path) -> None:
    text = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,8,30,100,vgg19,50,3\n"
    (job,) = read(written(tmp_path, text))
    assert (job.duration_s, job.iterations, job.gpus) == (50.0, 100, 8)


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


@pytest.mark.parametrize(
    ("text", "line", "column", "complaint"),
    [
        ("name,arrival_s,gpus\n1,0,1\n", 1, "duration_s", "missing"),
        ("job_id,submit_s,duration_s,gpus\n1,0,5,1\n", 1, "job_id", "is called name"),
        ("name,submit_s,gpus\n1,0,1\n", 1, "submit_s", "is called arrival_s"),
        (CSV.replace("gpus", "gpus,priority") + "1,0,5,1,2\n", 1, "priority", "is called opportunistic"),
        (CSV.replace("gpus", "gpus,opportunistic") + "1,0,5,1,2\n", 2, "opportunistic", "must be 0 or 1"),
        (CSV + "1,0,-5,1\n", 2, "duration_s", "must be positive"),
        (CSV + "1,0,0,1\n", 2, "duration_s", "must be positive"),
        (CSV + "1,0,5,1\n2,-1,5,1\n", 3, "arrival_s", "must not be negative"),
        (CSV + "1,0,5,0\n", 2, "gpus", "at least 1"),
        (CSV + "1,0,5,1.5\n", 2, "gpus", "whole number"),
        (CSV + "1,0,5,9\n", 2, "gpus", "the cluster has 8"),
        (CSV + "1,0,5,1\n1,1,5,1\n", 3, "name", "was on line 2 already"),
        (CSV + "1,9,5,1\n2,8,5,1\n", 3, "arrival_s", "comes before"),
        (CSV + "1,0,soon,1\n", 2, "duration_s", "'soon' is not a number"),
        (CSV + "1,0,nan,1\n", 2, "duration_s", "is not a finite number"),
        (CSV + "1,0,,1\n", 2, "duration_s", "empty"),
        (CSV + "1,0,5\n", 2, "", "3 cells in a table of 4 columns"),
        (CSV, 0, "", "no jobs"),
        ("0,unheard-of,0,10,1\n", 1, "model", "'unheard-of' is unknown"),
        (
            MURI + "7,4,0,100,a2c,64,60000,0,500,0,0,0,1\n",
            2,
            "resource_time_0",
            "all stage times are 0; want at least one above 0",
        ),
        ("name,time,application,num_replicas,batch_size\nx,1,bert,1,4\n", 1, "", "Pollux"),
        ("timestamp,duration,num_gpus,cluster\nyesterday,5,1,a\n", 2, "timestamp", "not a date"),
        (CSV.replace("gpus", "gpus,cpu_s") + "1,0,5,1,2\n", 1, "storage_s", "missing, though cpu_s"),
    ],
)
def test_errors_name_line_and_column(
    tmp_path: Path, text: str, line: int, column: str, complaint: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadTrace, match=complaint) as caught:
        read(path, Cluster.uniform(1, 8))
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="cannot be read"):
        read(tmp_path / "nowhere.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadTrace, match="cannot be read"):
        read(tmp_path / "binary")
    with pytest.raises(BadTrace, match="format 'xml' is unknown"):
        read(written(tmp_path, CSV), format="xml")


@pytest.mark.parametrize("column", ["deadline", "Deadline_S", "deadline_sec", "deadline (s)", "deadlin_s"])
def test_a_column_called_almost_as_a_known_one_is_refused(tmp_path: Path, column: str) -> None:
    with pytest.raises(BadTrace, match="did you mean 'deadline_s'") as caught:
        read(written(tmp_path, f"name,arrival_s,duration_s,gpus,{column}\n1,0,5,1,9\n"))
    assert caught.value.column == column
    (job,) = read(written(tmp_path, "name,arrival_s,duration_s,gpus,mode,cpus\n1,0,5,1,x,9\n"))
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
