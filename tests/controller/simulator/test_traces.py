from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from controller.policies.scheduling import BadTrace
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
        ("job_id,submit_s,duration_s,gpus\n1,0,5,1\n", 1, "job_id", "is no column: want name"),
        ("name,submit_s,gpus\n1,0,1\n", 1, "submit_s", "is no column: want arrival_s"),
        (CSV.replace("gpus", "gpus,priority") + "1,0,5,1,2\n", 1, "priority", "is no column: want opp"),
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


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"


def test_what_a_published_log_leaves_out_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        "1,ua,va,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:01,2020-04-01 00:00:09,8,1",
        "2,ua,va,8,4,1,CANCELLED,2020-04-01 00:00:02,2020-04-01 00:00:03,2020-04-01 00:00:03,0,1",
        "4,ub,vb,2,4,1,FAILED,2020-04-01 00:01:00,2020-04-01 00:01:00,2020-04-01 00:02:00,60,0",
        "3,ub,vb,1,4,1,COMPLETED,2020-04-01 00:00:30,2020-04-01 00:01:00,2020-04-01 00:02:00,60,30",
        "5,uc,va,0,4,1,COMPLETED,2020-04-01 00:03:00,2020-04-01 00:03:01,2020-04-01 00:03:09,8,1",
    ]
    path = written(tmp_path, HELIOS + "\n".join(rows))
    with caplog.at_level(logging.WARNING):
        jobs = read(path)
    assert [(job.name, job.gpus, job.arrival_s, job.vc) for job in jobs] == [
        ("3", 1, 0, "vb"),
        ("4", 2, 30, "vb"),
    ]
    assert f"{path}: 2 jobs are read, and these left out: 2 without a GPU, 1 that took no time" in caplog.text
    with pytest.raises(BadTrace, match="no job is left: 1 without a GPU, 1 that took no time"):
        read(written(tmp_path, HELIOS + "\n".join(rows[:2])))


def test_phillys_own_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    path = written(tmp_path, json.dumps([late, twice, running, job("never")]), "cluster_job_log")
    jobs = read(path)
    assert [(each.name, each.gpus, each.arrival_s, each.duration_s) for each in jobs] == [
        ("twice", 4, 0, 90.0),
        ("late", 1, 1800, 10.0),
    ]
    assert (jobs[0].vc, jobs[0].user, jobs[0].extra["status"]) == ("v1", "u", "Pass")
    assert "1 without a start or an end, 1 without a GPU" in caplog.text
    assert read(written(tmp_path, path.read_text(), "log.json")) == jobs
    with pytest.raises(BadTrace, match="column attempts: missing in job 1"):
        read(
            written(
                tmp_path,
                json.dumps([{**late, "attempts": None} | {"jobid": "a"}]).replace('"attempts": null, ', ""),
            )
        )
    with pytest.raises(BadTrace, match="column attempts: job 1: want start_time, end_time and detail"):
        read(written(tmp_path, json.dumps([late | {"attempts": [{"start_time": "x"}]}])))
    with pytest.raises(BadTrace, match="not JSON"):
        read(written(tmp_path, "[{"))


def test_acme(tmp_path: Path) -> None:
    text = (
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
        "dlc1,u1,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:26+00:00,,,18,10.0,1152.0\n"
        "dlc2,u2,1,8,96,1000,100.0,Pretrain,COMPLETED,2023-05-17 11:01:58+00:00,2023-05-17 11:02:00+00:00,"
        "2023-05-17 11:03:00+00:00,,,60,2.0,480.0\n"
    )
    first, second = read(written(tmp_path, text))
    assert (first.name, first.gpus, first.duration_s, second.arrival_s) == ("dlc1", 64, 18, 60)
    assert (second.user, second.extra["state"]) == ("u2", "COMPLETED")


def test_alibaba_2020_without_a_header(tmp_path: Path) -> None:
    rows = (
        "j1,ps,1.0,Terminated,100.0,400.0,600.0,29.3,,\n"
        "j1,worker,3.0,Terminated,110.0,400.0,600.0,29.3,50.0,T4\n"
        "j1,evaluator,1.0,Terminated,105.0,300.0,600.0,29.3,100.0,T4\n"
        "j2,tensorflow,1.0,Failed,50.0,80.0,600.0,29.3,25.0,MISC\n"
        "j3,tensorflow,1.0,Running,90.0,,600.0,29.3,100.0,V100\n"
    )
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    for text in (rows, header + rows):
        jobs = read(written(tmp_path, text))
        assert [(each.name, each.gpus, each.arrival_s, each.duration_s) for each in jobs] == [
            ("j2", 1, 0, 30),
            ("j1", 3, 55, 295),  # two GPUs for three halves, and one
        ]


def test_alibaba_2023_and_2025(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
        "p0,88000,327680,8,1000,,Burstable,Succeeded,1000,5000,1010\n"
        "p1,4000,15258,1,220,V100M16|V100M32,BE,Running,1500,1600,1500\n"
        "p2,4000,15258,1,1000,,LS,Pending,1700,1800,\n"
        "p3,4000,15258,0,0,,LS,Running,1700,1800,1700\n"
    )
    first, second = read(written(tmp_path, text))
    assert (first.gpus, first.duration_s, second.gpus, second.arrival_s) == (8, 3990, 1, 500)
    assert "1 without a start or an end, 1 without a GPU" in caplog.text
    text = (
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
        "i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,\n"
        "i1,HN,app_0,12,12,2,2,25,25,120.0,120.0,640.0,800.0,8,70.0,71.0,91.0\n"
    )
    (job,) = read(written(tmp_path, text))
    assert (job.name, job.gpus, job.duration_s, job.arrival_s) == ("i1", 2, 20, 0)


def test_sacct(tmp_path: Path) -> None:
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
        jobs = read(written(tmp_path, text))
        assert [(each.name, each.gpus, each.arrival_s, each.duration_s) for each in jobs] == expected
    assert (jobs[0].user, jobs[0].vc) == ("bob", "gpu")
    with pytest.raises(BadTrace, match="missing; the format seems to be 'sacct'") as caught:
        read(written(tmp_path, "JobIDRaw|Submit|State|ElapsedRaw\n1|2024-05-01T10:00:00|COMPLETED|5\n"))
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
def test_a_file_of_no_known_format_is_told_so(tmp_path: Path, header: str, said: str) -> None:
    with pytest.raises(BadTrace, match=said):
        read(written(tmp_path, header + "\n" + "1," * header.count(",") + "1\n"))
