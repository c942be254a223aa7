"""Descriptions of jobs and clusters: what they say, and what is said of those that are wrong."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.simulator import generate as scheduling
from controller.simulator.network import generate
from controller.vocabulary import (
    CATALOG,
    BadSpec,
    Cluster,
    Job,
    Straggler,
    Topology,
    dump_topology,
    fabrics,
    find_topology,
    float32_bytes,
    graphs,
    named,
    parse_topology,
    schema,
    shapes,
    tree,
)
from controller.vocabulary.documents import parse, read
from controller.vocabulary.files import (
    jobs_of,
    parse_jobs,
    read_jobs,
    read_topology,
    topology_of,
    unused,
    write_jobs,
)
from tests import effort

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "allocation"
RACK = fabrics.star(4, fabrics.Parts(gpus=2))

JOB = {"name": "a", "workers": 2, "model": "vgg16", "deadline_s": 9.0, "servers": ["h1", "h2"]}
TOML = '[[job]]\nname = "a"\nworkers = 2\nmodel = "vgg16"\ndeadline_s = 9.0\nservers = ["h1", "h2"]\n'
MACHINE = '[[switch]]\nname = "s1"\n[[server]]\nname = "h1"\nswitch = "s1"\n'
OTHER = '[[server]]\nname = "h2"\nswitch = "s1"\n'
YAML = "job:\n  - name: a\n    workers: 2\n    model: vgg16\n    deadline_s: 9e0\n    servers: [h1, h2]\n"


def test_shipped_jobs_are_read_for_their_clusters() -> None:
    assert len(read_jobs(EXAMPLES / "jobs.toml", read_topology(EXAMPLES / "rack.toml"))) == 6
    assert len(read_jobs(EXAMPLES / "batch.yaml", read_topology(EXAMPLES / "fabric.toml"))) == 8


def test_three_formats_say_the_same() -> None:
    texts = {"f.toml": TOML, "f.json": json.dumps({"job": [JOB]}), "f.yaml": YAML}
    jobs = [jobs_of(parse(text, name), RACK) for name, text in texts.items()]
    assert jobs[0] == jobs[1] == jobs[2]
    assert jobs[0][0].model_bytes == 138_357_544 * 4


def test_jobs_that_are_written_are_read_again(tmp_path: Path) -> None:
    tree = {"root": "s1", "parents": {}, "aggregators": ["s1"]}
    jobs = jobs_of(parse(json.dumps({"job": [{**JOB, "tree": tree, "hold_s": 1e-4}]}), "f.json"))
    write_jobs(tmp_path / "out.json", jobs)
    assert read_jobs(tmp_path / "out.json") == jobs


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        ({"wrokers": 3}, 2, "unknown key 'wrokers'; did you mean 'workers'?"),
        ({"workers": 0}, 2, "workers = 0: want a whole number, 1 to 1000000"),
        ({"compute_s": float("nan")}, 2, "compute_s = nan: want seconds, from 0"),
        ({"deadline_s": -1}, 2, "deadline_s = -1: want seconds, above 0"),
        ({"model_bytes": 5}, 1, "want one of model, model_bytes, layers_bytes, not model and model_bytes"),
        ({"model": "vgg"}, 2, 'model = "vgg": want one of'),
        ({"workers": 9, "servers": []}, 2, "servers = []: want a list of length 1"),
        ({"workers": 3}, 2, "2 servers for 3 workers; want one for each"),
        ({"gpus_per_worker": 3}, 1, "servers: 3 GPUs of 'h1', which has 2"),
        ({"gpus_per_worker": 5}, 1, "2 workers of 5 GPUs each; the cluster has 8 GPUs"),
        ({"servers": ["h1", "h9"]}, 1, "there is no server 'h9'"),
        ({"tree": {"root": "s1", "parents": {"s2": "s3", "s3": "s2"}}}, 2, "leads in a circle"),
        ({"tree": {"root": "s1", "parent": {}}}, 2, "unknown key 'parent'; did you mean 'parents'?"),
        ({"tree": {"root": "s7"}}, 1, "tree: there is no switch 's7'"),
        ({"tree": "s1"}, 2, "want a table of root, parents, aggregators"),
        ({"name": ""}, 2, 'name = "": want 1 to 200 printable characters'),
    ],
)
def test_what_is_wrong_with_a_job_is_said_by_file_line_and_key(
    change: dict[str, object], line: int, said: str
) -> None:
    lines = [f'"{key}": {json.dumps(value)}' for key, value in {**JOB, **change}.items()]
    changed = [each for each in lines if each.startswith(tuple(f'"{key}"' for key in change))]
    others = [each for each in lines if each not in changed]
    text = '{"job": [{\n' + ", ".join(changed) + ",\n" + ",\n".join(others) + "}]}"
    with pytest.raises(BadSpec) as raised:
        jobs_of(parse(text, "f.json"), RACK, require=("model",))
    assert said in str(raised.value)
    assert str(raised.value).startswith("f.json:")
    if line == 2 and "deadline_s is" not in said and "2 servers for" not in said:
        assert str(raised.value).startswith("f.json:2: job ")


@pytest.mark.parametrize("name", ["toml", "yaml"])
def test_lines_are_those_of_the_keys(name: str) -> None:
    text = {"toml": TOML, "yaml": YAML}[name].replace("workers", "wrokers")
    with pytest.raises(BadSpec, match=rf"f\.{name}:3: job 'a': unknown key 'wrokers'"):
        jobs_of(parse(text, f"f.{name}"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[fabric]\nshape = "star"\nservers = 2\n[[server]]\nname = "h1"', "contradicts [fabric]"),
        ('[fabric]\nshape = "star"\nservers = 0', "f.toml:3: fabric: servers = 0"),
        ('[fabric]\nshape = "star"\nservers = 2\nk = 4', "k: this shape has servers only"),
        ('[fabric]\nshape = "fat-tree"\nk = 3\nhosts = 1', "k = 3: want an even number"),
        ('[fabric]\nshape = "star"\nservers = 2\nrate_bps = 2e15', "fabric: rate_bps = 2000000000000000.0"),
        ('[[switch]]\nname = "s1"\nslots = 0\naggregates = true', "aggregates is not a key: want slots = 0"),
        ('[[switch]]\nname = "s1"\n[[server]]\nname = "h1"', "f.toml:3: server 'h1' has 0 links"),
        (
            '[[switch]]\nname = "s1"\n[[server]]\nname = "s1"\nswitch = "s1"',
            "both ends are the same node",
        ),
        (
            '[[switch]]\nname = "s1"\n[[switch]]\nname = "s2"\n[[server]]\nname = "h1"\nswitch = "s1"',
            "f.toml:3: switch 's2' cannot be reached",
        ),
        (
            '[[switch]]\nname = "s1"\n[[link]]\na = "s1"\nb = "s9"\n[[server]]\nname = "h1"\nswitch = "s1"',
            "f.toml:3: link: unknown node 's9'",
        ),
        (
            f"{MACHINE}port = 1\n{OTHER}port = 1\n",
            "f.toml:7: 'h2' has port 1 of switch 's1', already given to 'h1'",
        ),
        (
            f'{MACHINE}ip = "10.0.0.9"\n{OTHER}ip = "10.0.0.9"\n',
            "server 'h2': ip is 10.0.0.9, already used by 'h1'",
        ),
        (
            f'{MACHINE}mac = "02:00:00:00:00:0A"\n{OTHER}mac = "02:00:00:00:00:0a"\n',
            "mac is 02:00:00:00:00:0a",
        ),
        (f'{MACHINE}mac = "01:00:5e:00:00:01"\n', "want a MAC address of one machine"),
        (f'{MACHINE}ip = "10.0.0"\n', "f.toml:6: server 'h1': ip = \"10.0.0\": want an IPv4 address"),
        (f"{MACHINE}port = 511\n", "port = 511: want a whole number, 1 to 510"),
        (f"{MACHINE}port = 1\ncount = 2\n", "f.toml:6: server 'h1': port is given for 2 servers; want one"),
        ('[[switch]]\nname = "s1"\np4runtime = "http://s1"', "want grpc://HOST:PORT or unix:PATH"),
        # too large for any memory: refused before it is made
        (
            "[fabric]\nshape='leaf-spine'\nspines=2\nleaves=100000\nhosts=10000",
            "f.toml:1: leaf-spine: 1,000,000,000 servers; want at most",
        ),
        (
            "[fabric]\nshape='leaf-spine'\nspines=2000\nleaves=1000\nhosts=1",
            "f.toml:1: leaf-spine: 2,001,000 links; want at most 1,000,000",
        ),
        (
            "[fabric]\nshape='fat-tree'\nk=100000\nhosts=1",
            "f.toml:1: fat-tree: 5,000,000,000 servers; want at most 1,000,000",
        ),
        (
            "[fabric]\nshape='star'\nservers=100000\ngpus=64",
            "f.toml:1: star: 100,000 servers of 64 GPUs; a cluster has at most",
        ),
        ("[[swich]]\n", "unknown key 'swich'; did you mean 'switch'?"),
        ("[[switch]\n", "f.toml: not TOML"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_said(text: str, said: str) -> None:
    with pytest.raises(BadSpec) as raised:
        topology_of(parse(text, "f.toml"))
    assert said in str(raised.value)


def test_given_ports_and_addresses_are_kept_and_others_follow_by_position() -> None:
    text = f'{MACHINE}port = 2\nip = "10.9.0.1"\n{OTHER}[[server]]\nname = "h3"\nswitch = "s1"\n'
    found = topology_of(parse(text, "f.toml"))
    assert {port: link.a for port, link in found.ports["s1"].items()} == {1: "h2", 2: "h1", 3: "h3"}
    assert [found.ip(name) for name in found.server] == ["10.9.0.1", "10.0.0.2", "10.0.0.3"]


def test_texts_that_are_none_of_these_formats(tmp_path: Path) -> None:
    for name, text, said in (
        ("a.json", '{"job": 1, "job": 2}', "'job' appears twice"),
        ("a.json", "[" * 100_000, "too deep"),
        ("a.json", "{\n,}", "a.json:2: not JSON"),
        ("a.json", '{"job": ' + "9" * 5000 + "}", "too many digits"),
        ("a.yaml", "job: " + "9" * 5000, "too many digits"),
        ("a.yaml", "job: [\n", "a.yaml:2: not YAML"),
        ("a.yaml", "a: 1\na: 2\n", "twice"),
        ("a.yaml", "job: \0\n", "a.yaml: not YAML: unacceptable character"),
        ("a.json", '{"": 1, "": 2}', "'' appears twice"),
        ("a.txt", "", "want a name that ends in"),
        ("a.toml", "\udcff", "cannot be read"),
    ):
        path = tmp_path / name
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(BadSpec) as raised:
            read(path)
        assert said in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.toml", "a.json", "a.yaml", "a"])
def test_pipes_are_not_opened(tmp_path: Path, name: str) -> None:
    """Opening one would wait for somebody who writes to it."""
    os.mkfifo(tmp_path / name)
    for place in (tmp_path / name, tmp_path, Path("/dev/zero")):
        with pytest.raises(BadSpec) as raised:
            read(place)
        assert str(raised.value) == f"{place}: cannot be read: not a regular file"


def test_dates_and_long_numbers_are_refused_like_anything_else() -> None:
    for text in (
        "2024-01-01",
        "9" * 400,
        "0x" + "f" * 5000,
        "[" * 3 + "1" + "]" * 3,
        "-inf",
        "nan",
        '"' + "x" * 500 + '"',
    ):
        with pytest.raises(BadSpec, match=r"f\.toml:4: job 'a': iterations = .{0,110}: want a whole number"):
            jobs_of(parse(f'[[job]]\nname = "a"\nworkers = 2\niterations = {text}\n', "f.toml"))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["h1", "s1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=effort.cases(120), deadline=None)
@given(st.data())
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    job = {
        **JOB,
        "tree": {"root": "s1"},
        **dict.fromkeys(data.draw(st.sets(st.sampled_from(sorted(schema.JOB))))),
    }
    for key in data.draw(st.lists(st.sampled_from(sorted(job)), max_size=2)):
        job[key] = data.draw(ANYTHING)
    parts: dict[str, object] = {
        "switch": [{"name": "s1", "slots": 10}],
        "server": [{"name": "h", "count": 2, "gpus": 2, "switch": "s1"}],
        "link": [],
    }
    part = data.draw(st.sampled_from(sorted(parts)))
    if data.draw(st.booleans()):
        parts[part] = data.draw(ANYTHING)
    elif parts[part]:
        known = {"switch": schema.SWITCH, "server": schema.SERVER}[part]
        parts[part][0][data.draw(st.sampled_from(sorted(known)))] = data.draw(ANYTHING)  # type: ignore[index]
    for name, read_it, text in (
        ("cluster.json", topology_of, json.dumps(parts)),
        ("jobs.json", lambda document: jobs_of(document, RACK), json.dumps({"job": [job]})),
    ):
        with contextlib.suppress(BadSpec):
            read_it(parse(text, name))


def test_yaml_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(BadSpec, match=r"pip install 'ina\[yaml\]'"):
        parse("job: []", "a.yaml")


def test_models_have_as_many_parameters_as_published() -> None:
    published = {"alexnet": 61_100_840, "vgg16": 138_357_544, "resnet50": 25_557_032}
    published |= {"bert-base": 109_482_240, "bert-large": 335_141_888, "gpt2": 124_439_808}
    for model, count in published.items():
        assert sum(shapes.layers_bytes(model)) == 4 * count
    assert shapes.FORWARD_FLOPS.keys() == shapes.SHAPES.keys()


def test_a_fat_tree_has_the_size_of_grids() -> None:
    tree = fabrics.fat_tree(8, 6, fabrics.Parts(programmable=0.2))
    assert (len(tree.switches), len(tree.servers)) == (80, 192)
    assert sum(switch.aggregates for switch in tree.switches) == 16


def test_a_testbeds_topology_is_a_cluster() -> None:
    topology = tree([2, 3], transit=[0], servers=1)
    cluster = graphs.with_memory(topology, slots=64, gpus=2)
    assert [switch.slots for switch in cluster.switches] == [0, 64, 64]
    assert cluster.racks == {"s1": ("p1",), "s2": ("h1", "h2", "h3"), "s3": ("h4", "h5", "h6")}
    assert cluster.gpus == 12
    assert cluster.switch["s2"].rtt_s == pytest.approx(2 * 3 * 2e-6)


@pytest.mark.parametrize("slack", [2.0, None])
def test_jobs_of_a_trace_have_layers_computing_times_and_deadlines(slack: float | None) -> None:
    specs = [replace(spec, deadline_s=7.0) for spec in scheduling.generate(20, Cluster.uniform(4, 4), seed=1)]
    jobs = generate.from_trace(specs, slack=slack)
    for job, spec in zip(jobs, specs, strict=True):
        assert (job.name, job.workers, job.arrival_s) == (spec.name, spec.gpus, spec.arrival_s)
        assert job.compute_s == pytest.approx(spec.iteration_s - spec.stages_s[-1])
        assert job.deadline_s == (7.0 if slack is None else slack * spec.duration_s)
    assert {sum(job.layers_bytes) for job in jobs} <= {sum(shapes.layers_bytes(m)) for m in generate.MODELS}


def test_generated_jobs_are_the_same_for_the_same_seed_and_fit() -> None:
    cluster: Topology = fabrics.star(4, fabrics.Parts(gpus=2))
    jobs = generate.generate(50, cluster, seed=3, gap_s=10, deadlines=0.5)
    assert jobs == generate.generate(50, cluster, seed=3, gap_s=10, deadlines=0.5)
    assert max(job.workers for job in jobs) <= 8
    assert 10 < sum(job.deadline_s is not None for job in jobs) < 40


@pytest.mark.parametrize("name", ["leaf-spine:99999x99999x99999", "fat-tree:99998"])
def test_a_topology_of_the_catalog_too_large_for_any_memory_is_refused(name: str) -> None:
    with pytest.raises(BadSpec, match="want at most 1,000,000"):
        named(name)


def test_words_of_yaml_are_those_of_its_core_schema() -> None:
    text = 'a: {no: [on, yes, True, ~, 1e9, 0x10, "1", .5, -7, 1_000, 2026-01-01, .nan, ٣]}'
    assert parse(text, "a.yaml").data["a"] == {
        "no": ["on", "yes", True, None, 1e9, "0x10", "1", 0.5, -7, 1000, "2026-01-01", ".nan", "٣"]
    }


def test_aliases_that_repeat_each_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.vocabulary.documents.MAX_VALUES", 10_000)
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    with pytest.raises(BadSpec, match=r"a\.yaml:1: more than 10000 values, counting repeats by aliases"):
        parse(bomb, "a.yaml")
    with pytest.raises(BadSpec, match="brackets are too deep"):
        parse("a: &a [*a]", "a.yaml")


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
        (
            "[[job]]\nfolder = '.'",
            "job 'job1': unknown key 'folder'; known are name, workers, gpus_per_worker",
        ),
        ("[[job]]\nworkers = 1\ncompute_s = -1", "compute_s = -1: want seconds, from 0"),
        ("[[job]]\nworkers = 1\ncompute_s = nan", "compute_s = nan: want seconds"),
        ("[[job]]\nworkers = 1\ncongestion = 'cubic'", "want one of 'fixed', 'aimd', 'a2tp', 'tcp'"),
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
        ("[[job]]\nworkers = 1\nskew_s = -1", "jobs.toml:3: job 'job1': skew_s = -1: want seconds, from 0"),
        (
            "[[job]]\nname = 'a'\nworkers = 1\n[[job]]\nname = 'b'\nworkers = 1\n\n[job.tree]\nrot = 's1'\n",
            "jobs.toml:9: job 'b': tree: unknown key 'rot'; did you mean 'root'",
        ),
        (
            "[[job]]\nworkers = 1\nduration_s = 5\niteration_s = 1e-320\n",
            "jobs.toml:4: job 'job1': duration_s = 5, iteration_s = 9.99989e-321: inf iterations",
        ),
        # a head inside a text of several lines is none
        (
            '[[job]]\nworkers = 1\ncommand = """\na\n[[job]]\nname = 3\n"""\n[[job]]\nworkers = 0\n',
            "jobs.toml:9: job 'job2': workers = 0",
        ),
        *(
            (
                f"[[job]]\nworkers = 1\ncongestion = '{name}'",
                "or one of your own: path.py:Name, package.module:Name or path.so:function",
            )
            for name in ("own.py:", ":Rule", "own.py", "own.py:a rule", "5")
        ),
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


def test_what_a_command_does_not_use_is_told() -> None:
    document = parse("[[job]]\nworkers = 1\noverlap = 0.5\nwindow = 3\n[[server]]\nname = 'a'", "f.toml")
    assert unused(document, "sim") == ["job.overlap"]
    assert unused(document, "place") == ["job.window"]


def test_a_duration_says_how_many_iterations() -> None:
    (job,) = parse_jobs("[[job]]\nworkers = 1\nduration_s = 10\ncompute_s = 0.5")
    assert (job.iterations, job.duration_s) == (20, 10)
    with pytest.raises(BadSpec, match="duration_s: iterations already determines it"):
        parse_jobs("[[job]]\nworkers = 1\nduration_s = 10\niterations = 5")


GOOD = """\
name: office
link_defaults: {rate_bps: 1e9, delay_s: 50e-6}
switch:
  - s1
  - {name: s2, slots: 0}
server: [h1, on, {name: p1, role: fallback}]
link:
  - [h1, s1]
  - [on, s2]
  - {a: s1, b: s2, rate_bps: 10e9, loss: 0.01}
  - [p1, s1]
"""


def test_a_file_says_what_it_means() -> None:
    topology = parse_topology(GOOD)
    assert (topology.name, topology.root) == ("office", "s1")
    assert [switch.aggregates for switch in topology.switches] == [True, False]
    assert [host.role for host in topology.servers] == ["worker", "worker", "fallback"]
    assert topology.rack_of["on"] == "s2"
    assert [(link.rate_bps, link.delay_s, link.loss) for link in topology.links[1:3]] == [
        (1e9, 50e-6, 0.0),
        (10e9, 50e-6, 0.01),
    ]


@pytest.mark.parametrize("name", CATALOG)
def test_what_is_written_is_read_again(name: str) -> None:
    topology = named(name)
    assert parse_topology(dump_topology(topology)) == topology


@pytest.mark.parametrize(
    "name", ["0E0", "1e5", ".5", "nUll", "True", "on", "~", "\u0663", "1_0", "- a", "a: b"]
)
def test_names_that_look_like_something_else_are_read_again(name: str) -> None:
    base = parse_topology("switch: [s]\nserver: [h]\nlink: [[h, s]]")
    hosts, links = (replace(base.servers[0], name=name),), (replace(base.links[0], a=name),)
    topology = Topology(base.switches, hosts, links)
    assert parse_topology(dump_topology(topology)) == topology


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)


@given(
    st.lists(names, min_size=2, max_size=2, unique=True),
    st.floats(0, 1e12),
    st.floats(0, 1),
    st.integers(1, 1 << 32),
)
def test_any_names_and_numbers_are_read_again(nodes: list[str], rate: float, loss: float, queue: int) -> None:
    host, switch = nodes
    base = parse_topology("switch: [s]\nserver: [h]\nlink: [[h, s]]")
    link = replace(base.links[0], a=host, b=switch, rate_bps=rate, loss=loss, queue_packets=queue)
    hosts, switches = (replace(base.servers[0], name=host),), (replace(base.switches[0], name=switch),)
    topology = Topology(switches, hosts, (link,))
    assert parse_topology(dump_topology(topology)) == topology


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("loss: 0.01", "loss: 2", "x.yaml:10: link: loss = 2: want a probability, from 0 to 1"),
        ("loss: 0.01", "los: 2", "x.yaml:10: link: unknown key 'los'; did you mean 'loss'?"),
        ("loss: 0.01", "queue_packets: 0", "x.yaml:10: link: queue_packets = 0: want a whole number, 1 to"),
        (
            "rate_bps: 1e9",
            "rate_bps: fast",
            'x.yaml:2: link_defaults: rate_bps = "fast": want bits per second',
        ),
        ("delay_s: 50e-6", "delay_s: nan", 'x.yaml:2: link_defaults: delay_s = "nan": want seconds'),
        ("[h1, s1]", "[h1, s9]", "x.yaml:8: link: unknown node 's9'; known are s1, s2, h1, on, p1"),
        ("[h1, s1]", "[h1]", "x.yaml:8: link: has 1 ends; want two, as [h1, s1]"),
        ("[h1, s1]", "{a: h1}", "x.yaml:8: link: b is missing"),
        ("[h1, s1]", "[h1, h1]", "x.yaml:8: link h1-h1: both ends are the same node"),
        (
            "role: fallback",
            "role: boss",
            "x.yaml:6: server 'p1': role = \"boss\": want one of 'worker', 'fallback', 'traffic'",
        ),
        ("slots: 0", "slots: -1", "x.yaml:5: switch 's2': slots = -1: want a whole number, 0 to"),
        ("slots: 0", "aggregates: false", "x.yaml:5: switch 's2': aggregates is not a key: want slots = 0"),
        ("name: office", "root: h1", "x.yaml:1: the root 'h1' is not a switch; want one of s1, s2"),
        ("name: office", "root: s3", "x.yaml:1: the root 's3' is not a switch; want one of s1, s2"),
        ("name: office", "? [1]\n: 2", "x.yaml:1: a key is not a text"),
        ("name: office", "name: [", "x.yaml:"),
        ("server: [h1, on,", "server: h1\nroot: [s1,", "x.yaml:7: root = "),
        (
            "server: [h1, on, {name: p1, role: fallback}]",
            "server: h1",
            'x.yaml:6: server = "h1": want a list',
        ),
        ("switch:", "switches:", "x.yaml:3: switches is not a key: want switch"),
        ("server:", "hosts:", "x.yaml:6: hosts is not a key: want server"),
        ("link:\n", "links:\n", "x.yaml:7: links is not a key: want link"),
        ("switch:", "swich:", "x.yaml:3: unknown key 'swich'; did you mean 'switch'?"),
        ("name: office", "link_defaults: {}", "x.yaml:2: the key 'link_defaults' appears twice"),
        (GOOD, "name: a", "x.yaml: switch is missing"),
        (GOOD, "", "x.yaml: switch is missing"),
        (GOOD, "- 1", "x.yaml: want a table at the top, not [1]"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_what_would_be_right(old: str, new: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        parse_topology(GOOD.replace(old, new, 1), source="x.yaml")
    assert str(caught.value).startswith(message)


def test_a_file_is_named_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD)
    assert find_topology(str(tmp_path / "a.yml")).name == "office"
    with pytest.raises(BadSpec, match=r"b\.yaml: cannot be read: No such file"):
        find_topology(str(tmp_path / "b.yaml"))
