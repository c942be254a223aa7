from __future__ import annotations

from pathlib import Path

import pytest

from controller.vocabulary import BadSpec, Job, Straggler, float32_bytes, parse_jobs, read_jobs, unused
from controller.vocabulary.documents import parse

ROOT = Path(__file__).parents[3]


def test_a_job_with_everything() -> None:
    (job,) = parse_jobs(
        """
        [[job]]
        name = "vision"
        workers = 8
        command = "python train.py --epochs '3'"
        preempt = true
        window = 256
        slots = 0
        congestion = "a2tp"
        numbers = "fixed"
        priority = 7
        arrival_s = 1
        iterations = 20
        layers_bytes = [40, 80]
        compute_s = 0.5
        jitter = 0.1
        straggler = { rank = 3, compute_s = 2 }
        """
    )
    assert job == Job(
        name="vision",
        workers=8,
        command=("python", "train.py", "--epochs", "3"),
        preempt=True,
        window=256,
        slots=0,
        congestion="a2tp",
        numbers="fixed",
        priority=7,
        arrival_s=1.0,
        iterations=20,
        layers_bytes=float32_bytes((10, 20)),
        compute_s=0.5,
        jitter=0.1,
        straggler=Straggler(3, 2.0),
    )


def test_jobs_have_names_even_without() -> None:
    jobs = parse_jobs("[[job]]\nworkers = 1\n[[job]]\nworkers = 2\ncommand = ['a', 'b c']")
    assert [(job.name, job.workers) for job in jobs] == [("job1", 1), ("job2", 2)]
    assert jobs[1].command == ("a", "b c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = 3", "jobs.toml:1: unknown key 'workers'; known are name, root"),
        ("", "jobs.toml: no jobs; want at least one [[job]]"),
        ("[job]\nworkers = 1", "jobs.toml:1: job: want a list of tables, such as [[job]] in TOML"),
        ("[[job]]\nname = 'a'", "jobs.toml:1: job 'a': workers is missing"),
        ("[[job]]\nworkers = 0", "jobs.toml:2: job 'job1': workers = 0: want a whole number, 1 to"),
        ("[[job]]\nworkers = true", "job 'job1': workers = true: want a whole number"),
        ("[[job]]\nworker = 1", "job 'job1': unknown key 'worker'; did you mean 'workers'?"),
        ("[[job]]\nxyz = 1", "job 'job1': unknown key 'xyz'; known are name, workers, gpus_per_worker"),
        ("[[job]]\nworkers = 1\ncompute_s = -1", "compute_s = -1: want seconds, from 0"),
        ("[[job]]\nworkers = 1\ncompute_s = nan", "compute_s = nan: want seconds"),
        ("[[job]]\nworkers = 1\ncongestion = 'tcp'", "want one of 'fixed', 'aimd', 'a2tp'"),
        (
            "[[job]]\nworkers = 1\nlayers_bytes = [1, 0]",
            "layers_bytes = [1, 0]: element 1, 0: want a whole number",
        ),
        ("[[job]]\nworkers = 1\ncommand = ''", "want the program and its arguments"),
        ("[[job]]\nworkers = 1\npreempt = 1", "preempt = 1: want true or false"),
        ("[[job]]\nworkers = 1\npriority = 256", "priority = 256: want a whole number, 0 to 255"),
        (
            "[[job]]\nworkers = 2\nstraggler = { rank = 2, compute_s = 1.5 }",
            "straggler: rank 2: the job has ranks 0 to 1",
        ),
        ("[[job]]\nworkers = 2\nstraggler = 1", "straggler = 1: want { rank = 0, compute_s = 0.01 }"),
        (
            "[[job]]\nname = 'a'\nworkers = 1\n[[job]]\nname = 'a'\nworkers = 1",
            "jobs.toml:5: job 'a': an earlier job has this name",
        ),
        ("[[job]]\nworkers = ", "jobs.toml: not TOML: "),
        ("[[job]]\nworkers = 1\nstart_s = 1", "job1': start_s is not a key: want arrival_s"),
        ("[[job]]\nworkers = 1\nsubmit_s = 1", "job1': submit_s is not a key: want arrival_s"),
        ("[[job]]\nworkers = 1\njob_id = 1", "jobs.toml:3: job 'job1': job_id is not a key: want name"),
        ("[[job]]\nworkers = 1\ntensors = [1]", "job 'job1': tensors is not a key: want layers_bytes"),
        ("[[job]]\nworkers = 1\ngpus = 1", "job 'job1': gpus is not a key: want gpus_per_worker"),
        ("[[job]]\nworkers = 1.5", "job 'job1': workers = 1.5: want a whole number"),
    ],
)
def test_errors_name_file_job_key_value_and_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        parse_jobs(text, source="jobs.toml")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["own.py:Rule", "package.module:Rule", "lib/own.so:rule", "a2tp"])
def test_a_congestion_control_may_be_ones_own(name: str) -> None:
    (job,) = parse_jobs(f"[[job]]\nworkers = 1\ncongestion = '{name}'")
    assert job.congestion == name


@pytest.mark.parametrize("name", ["own.py:", ":Rule", "own.py", "own.py:a rule", "5"])
def test_what_names_no_rule_is_refused_with_what_would(name: str) -> None:
    with pytest.raises(
        BadSpec, match=r"or one of your own: path\.py:Name, package\.module:Name or path\.so:function"
    ):
        parse_jobs(f"[[job]]\nworkers = 1\ncongestion = '{name}'")


def test_a_reader_says_what_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text("[[job]]\nworkers = 1\n")
    assert read_jobs(file)[0].command is None
    with pytest.raises(BadSpec, match=r"jobs\.toml:1: job 'job1': command is missing"):
        read_jobs(file, require=("command",))


def test_a_file_from_windows(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('[[job]]\nname = "é"\nworkers = 2\n', encoding="utf-8-sig", newline="\r\n")
    assert [job.name for job in read_jobs(file)] == ["é"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match=r"none\.toml: cannot be read: No such file"):
        read_jobs(tmp_path / "none.toml")


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.name)
def test_the_examples_are_job_files(file: Path) -> None:
    assert read_jobs(file)


def test_a_whole_number_is_one_however_it_is_written() -> None:
    (job,) = parse_jobs("[[job]]\nworkers = 1e1\niterations = 2e3\nwindow = 16.0\nlayers_bytes = [4e3]")
    assert (job.workers, job.iterations, job.window, job.layers_bytes) == (10, 2000, 16, (4000,))
    assert all(type(each) is int for each in (job.workers, job.iterations, job.window, *job.layers_bytes))


def test_a_head_inside_a_text_of_several_lines_is_none() -> None:
    text = '[[job]]\nworkers = 1\ncommand = """\na\n[[job]]\nname = 3\n"""\n[[job]]\nworkers = 0\n'
    with pytest.raises(BadSpec, match=r"jobs\.toml:9: job 'job2': workers = 0"):
        parse_jobs(text, source="jobs.toml")


def test_what_a_command_does_not_use_is_told() -> None:
    document = parse("[[job]]\nworkers = 1\noverlap = 0.5\nwindow = 3\n[[server]]\nname = 'a'", "f.toml")
    assert unused(document, "sim") == ["job.overlap"]
    assert unused(document, "place") == ["job.window"]


def test_a_duration_says_how_many_iterations() -> None:
    (job,) = parse_jobs("[[job]]\nworkers = 1\nduration_s = 10\ncompute_s = 0.5")
    assert (job.iterations, job.duration_s) == (20, 10)
    with pytest.raises(BadSpec, match="duration_s: iterations already determines it"):
        parse_jobs("[[job]]\nworkers = 1\nduration_s = 10\niterations = 5")
