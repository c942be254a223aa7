"""One job file and one cluster file for every command, and the page of their keys."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.vocabulary import cluster_of, documents, jobs_of, schema
from tests.system.command import ROOT, good

JOBS, CLUSTER = "examples/cluster/two_jobs.toml", "examples/cluster/two.toml"
BOTH = ("--jobs", JOBS, "--cluster", CLUSTER)


def ina(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``ina words…`` in this process, with this Python's commands on its path; it must succeed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        return good(*words)


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (("run", "--jobs", JOBS, "--cluster", CLUSTER), "job.compute_s"),
        (("sim", JOBS, "--cluster", CLUSTER), "job.command"),
        (("alloc", *BOTH, "--policy", "deadline,static"), "job.command"),
        (("place", *BOTH, "--policy", "netpack,random"), "job.command"),
        (("route", *BOTH, "--policy", "grid,tor-only"), "job.command"),
        (("cluster", "simulate", *BOTH), "job.command"),
        (("schedule", "simulate", "--trace", JOBS, "--cluster", CLUSTER, "--policy", "fifo"), "job.servers"),
        (
            ("schedule", "sweep", "--trace", JOBS, "--cluster", CLUSTER, "--policy", "fifo"),
            "job.servers",
        ),
        (
            (
                *("schedule", "tune", "--trace", JOBS, "--cluster", CLUSTER),
                *("--policy", "muri-s", "--try", "interval_s=60,90"),
            ),
            "job.servers",
        ),
        (("schedule", "plan", *BOTH), "job.servers"),
        (("schedule", "live", "--jobs", JOBS, "--gpus", "2", "--policy", "fifo"), "job.servers"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else value,
)
def test_every_command_takes_the_same_files_and_says_what_it_does_not_use(
    words: tuple[str, ...], unused: str
) -> None:
    done = ina(*words, "--json")
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(f"{JOBS}: "))
    assert " does not use " in line
    assert unused in line.replace(",", "").split()
    said = [line.partition(" does not use ")[2].split(", ") for line in done.stderr.splitlines()]
    keys = json.loads(done.stdout)["setup"]["unused_keys"]
    assert sorted(keys) == sorted({key for line in said for key in line if key})


@pytest.mark.parametrize(
    "words",
    [("show", CLUSTER), ("run", CLUSTER, "--runner", "loopback", "-np", "1", "--", "true")],
    ids=["show", "run"],
)
def test_a_testbed_says_what_it_does_not_use_of_its_topology(words: tuple[str, ...]) -> None:
    command, *rest = words
    done = ina("topo", command, "--json", *rest)
    keys = json.loads(done.stdout)["setup"]["unused_keys"]
    assert f"{CLUSTER}: ina topo does not use {', '.join(keys)}" in done.stderr.splitlines()
    assert "server.gpus" in keys


def test_a_scenario_says_what_it_does_not_use_of_its_files(tmp_path: Path) -> None:
    network, scenario = tmp_path / "network.toml", tmp_path / "own.toml"
    network.write_text(
        '[[switch]]\nname = "s1"\nlanes = 32\n[[server]]\nname = "h"\ncount = 2\nswitch = "s1"\n'
    )
    scenario.write_text(
        f'summary = "two"\ntopology = "{network}"\nroot = "s1"\n'
        '[[job]]\nname = "a"\nworkers = 2\nslots = 64\niterations = 1\nuser = "me"\n'
        '[[check]]\njob = "a"\nmetric = "iteration_s"\nleast = 0\n'
    )
    done = ina("scenario", "run", str(scenario), "--json")
    assert done.stderr.splitlines() == [
        f"{scenario}: ina scenario does not use root, job.user",
        f"{network}: ina topo does not use switch.lanes",
    ]
    assert json.loads(done.stdout)["setup"]["unused_keys"] == ["root", "job.user", "switch.lanes"]


def test_live_jobs_on_a_cluster_use_its_network_by_the_policies_that_are_given(
    write_file: Callable[[str, str], Path],
) -> None:
    """Their decisions are those of all commands: `tests/ina/test_one_decision.py`."""
    network = ("--placement", "locality", "--memory", "static", "--routing", "tor-only")
    short = re.sub('command = ".*"', 'command = "sleep 2"', (ROOT / JOBS).read_text())
    both = ("--jobs", str(write_file("jobs.toml", short)), "--cluster", CLUSTER)
    done = ina("schedule", "live", *both, "--policy", "fifo", *network, "--json")
    found = json.loads(done.stdout)
    assert found["setup"]["unused_keys"] == ["root", "link_defaults.delay_s"]
    assert found["metrics"]["ended"] == 2
    first = {(each["jobs"][0], each["event"]): each["text"] for each in reversed(found["setup"]["log"])}
    assert first["first", "placed"] == "on left1, right1; its tree is s1, s2, summed at s1"
    assert first["second", "placed"] == "on left2, right2; its tree is s1, s2, summed at s1"
    assert first["second", "memory"] == "granted: 4096 slots at s1, from 4096 on"


def test_edf_meets_a_deadline_that_srsf_misses(write_file: Callable[[str, str], Path]) -> None:
    common = 'workers = 32\nmodel = "resnet50"\ncompute_s = 0.04\n'
    jobs = write_file(
        "jobs.toml",
        f'[[job]]\nname = "a"\niterations = 2000\n{common}'
        f'[[job]]\nname = "b"\niterations = 4000\ndeadline_s = 215\n{common}',
    )
    cluster = ("--cluster", "examples/cluster/racks.toml")
    done = ina("cluster", "simulate", "--jobs", str(jobs), *cluster, "--scheduler", "edf,srsf")
    fates = {row.split()[1]: row for row in done.stdout.splitlines() if " of 1" in row}
    assert "0 of 1" in fates["edf"]
    assert "1 of 1" in fates["srsf"]


DESCRIPTIONS = [
    pytest.param(page, kind, text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in sorted((ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    for number, (kind, text) in enumerate(
        re.findall(r"^```(toml|yaml)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )
    if re.search(r"^(\[\[|name:|job:|server:)", text, re.MULTILINE)
]


@pytest.mark.parametrize(("page", "kind", "text"), DESCRIPTIONS)
def test_jobs_and_clusters_on_pages_are_read(page: Path, kind: str, text: str) -> None:
    document = documents.parse(text, f"{page.name}.{kind}")
    if "job" in document.data:
        assert jobs_of(document)
    if "server" in document.data:
        assert cluster_of(document).servers
    assert document.data.keys() & {"job", "server"}


def test_pages_describe_jobs_a_cluster_and_a_topology() -> None:
    assert {str(each.id).rpartition("-")[0] for each in DESCRIPTIONS} >= {
        "docs/tutorials/first-sum.md",
        "docs/reference/schedule-files.md",
        "docs/guides/testbeds.md",
    }


def rows(kind: str) -> list[str]:
    return [
        f"| `{key}` | {each.meaning} | {each.default} | {used(each.used_by)} |"
        for key, each in schema.TABLES[kind].items()
    ]


def used(commands: tuple[str, ...]) -> str:
    each = dict.fromkeys(commands)
    others = [command for command in schema.COMMANDS if command not in each]
    if len(others) < 2:
        return " but ".join(["all", *(f"`{command}`" for command in others)])
    return ", ".join(f"`{command}`" for command in each)


KEYS = [ROOT / "docs" / "reference" / page for page in ("files.md", "cluster-files.md")]


def test_the_pages_of_keys_are_those_of_the_schema() -> None:
    listed = [line for page in KEYS for line in page.read_text().splitlines() if line.startswith("| `")]
    expected = [row for kind in schema.TABLES for row in rows(kind)]
    assert listed == expected, "python -m tests.system.test_files writes the tables"


def write_page() -> None:
    for path in KEYS:
        path.write_text(with_tables(path.read_text()))


def with_tables(text: str) -> str:
    for kind in schema.TABLES:
        head = f"<!-- keys of {kind or 'the top'} -->\n"
        if head not in text:
            continue
        before, _, rest = text.partition(head)
        after = rest[rest.index("<!-- end -->") :]
        table = "\n".join(["| key | meaning | default | used by |", "| --- | --- | --- | --- |", *rows(kind)])
        text = f"{before}{head}{table}\n{after}"
    return text


if __name__ == "__main__":
    write_page()
