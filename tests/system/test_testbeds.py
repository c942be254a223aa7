"""Testbeds of network namespaces, as people use them: through the command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.testbeds import netns
from ina.errors import ProcessFailed
from ina.run.fallback.testbed import TestbedFallback
from tests.programs import with_ingress
from tests.system.clusters import NO_NAMESPACES, needs_namespaces
from tests.system.command import WORKERS, begun, ended, here, ina, start, until
from tests.system.controllers import PREFIX

EXACT = ["python", str(WORKERS / "exact.py")]


have_mininet = pytest.mark.skipif(
    shutil.which("mnexec") is None, reason="no Mininet: apt-get install mininet"
)


@pytest.fixture(autouse=True)
def _own_folder(beds: Path) -> Iterator[None]:
    yield
    if not NO_NAMESPACES:
        here("topo", "down", "--all")
        assert namespaces() == []


def namespaces() -> list[str]:
    """Those of this process's testbeds."""
    folder = Path("/run/netns")
    return [path.name for path in folder.iterdir() if f".{PREFIX}" in path.name] if folder.exists() else []


def topo(*arguments: object, status: int) -> subprocess.CompletedProcess[str]:
    """Run ``ina topo arguments…``: in this process, unless it becomes the command that it executes."""
    return (ina if arguments[0] == "exec" else here)("topo", *arguments, status=status)


def good(*arguments: object) -> str:
    return topo(*arguments, status=0).stdout


def bad(*arguments: object, status: int = 1) -> str:
    return topo(*arguments, status=status).stderr


def metrics(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output)["metrics"]
    return found


def test_a_dry_run_is_told_as_json_too() -> None:
    commands = metrics(good("up", "single-switch:1", "--dry-run", "--json"))["commands"]
    assert "\n".join(commands) + "\n" == good("up", "single-switch:1", "--dry-run")
    assert commands[0] == "ip netns add ina.single-switch-1.s1"


def test_who_names_no_testbed_hears_which_are_up(beds: Path) -> None:
    for name in ("one", "two"):
        (beds / name).mkdir()
        (beds / name / "state.json").touch()
    assert "which testbed? one, two are up: give the name of one" in bad("exec", "h1", "--", "true")
    said = bad("run", "oen", "--", "true", status=2)
    assert re.search(r"unknown topology 'oen'; .*testbeds that are up:\s+one, two", said, re.DOTALL)
    shutil.rmtree(beds)
    assert "testbeds that are up: none" in bad("run", "oen", "--", "true", status=2)


@needs_namespaces
def test_two_testbeds_run_jobs_side_by_side_until_they_are_taken_down() -> None:
    a, b = f"{PREFIX}-a", f"{PREFIX}-b"
    good("up", "two-racks:1", "--name", a, "--rate", "1e9", "--lanes", 64)
    good("up", "single-switch:2", "--name", b, "--program", "shared", "--lanes", 32, "--loss", "0.02")
    assert "is up, or its files are left" in bad("up", "dumbbell", "--name", a)
    assert "has no node 'h9'; it has h1, h2, p1, s1" in bad("exec", "h9", "--name", a, "--", "true")
    assert ina("topo", "exec", "h1", "--name", a, "--", "sh", "-c", "exit 7").returncode == 7
    runs = [start("topo", "run", name, "--json", "--", *EXACT, "5003", "70000") for name in (a, b)]
    first, second = (metrics(run.communicate()[0]) for run in runs)
    assert first["switch_completed_packets"] > 2 * 75_000 // 64
    # or each packet would be sent again, for the nearer switch to answer; a busy machine has some sent again
    assert first["resent_packets"] < first["sent_packets"] / 2, "workers hear the switch that they know"
    assert second["switch_completed_packets"] > 0
    assert "-np 5: want 1 to 2, the hosts" in bad("run", a, "-np", 5, "--", "true", status=2)
    good("down", a)
    assert {name.split(".")[1] for name in namespaces()} == {b}
    assert f"no testbed '{a}'; up are {b}" in bad("down", a)
    assert f"give --name {b} if you mean that testbed" in bad("exec", b, "h1", "--", "true")
    good("export", "--name", b, "--json")
    good("down", "--name", b)
    assert list(Path(os.environ["INA_TESTBEDS"]).iterdir()) == []  # no locks, either


@pytest.mark.parametrize(
    ("command", "role", "elsewhere"),
    [("up", "fallback", "p1 at s2"), ("run", "fallback", "p1 at s2"), ("run", "worker", "none")],
)
def test_a_program_that_shares_slots_needs_a_fallback_server_at_the_root(
    command: str, role: str, elsewhere: str, tmp_path: Path
) -> None:
    (tmp_path / "far.toml").write_text(FAR.replace("fallback", role))
    after = ("--", "true") if command == "run" else ()
    said = bad(command, tmp_path / "far.toml", "--program", "shared", *after, status=2)
    assert f"no server with the role fallback at its root s1 (elsewhere: {elsewhere})" in said
    assert "making namespaces" not in said


def test_a_testbed_without_a_fallback_host_is_taken_and_says_which_jobs_need_one(tmp_path: Path) -> None:
    """Those of a controller do not."""
    (tmp_path / "far.toml").write_text(FAR.replace("fallback", "worker"))
    done = topo("up", tmp_path / "far.toml", "--program", "shared", "--dry-run", status=0)
    assert "'ina topo run' needs one at the root" in done.stderr


FAR = """
root = "s1"
switch = ["s1", "s2"]
server = ["h1", {name = "p1", role = "fallback"}]
link = [["h1", "s1"], ["p1", "s2"], ["s1", "s2"]]
"""


@needs_namespaces
def test_jobs_of_several_commands_share_a_fallback_server_which_ends_with_the_last(tmp_path: Path) -> None:
    name, go = f"{PREFIX}-g", tmp_path / "go"
    good("up", "single-switch:4", "--name", name, "--program", "shared", "--lanes", 32)
    waiting = ("sh", "-c", f'while ! [ -e {go} ]; do sleep 0.1; done; exec "$@"', "sh")
    on = (name, "-np", 2, "--slots", 0, "--json")  # the fallback server sums everything
    first = start("topo", "run", *on, "--", *waiting, *EXACT, "70000")
    (server,) = until(lambda: servers(name))
    assert metrics(good("run", *on, "--", *EXACT, "5003"))["fallback_results"] > 0
    assert servers(name) == [server]
    os.kill(server, signal.SIGKILL)
    until(lambda: set(servers(name)) - {server})
    go.touch()
    output, said = first.communicate()
    assert metrics(output)["fallback_results"] > 0, said
    assert "the fallback server on p1 has ended; starting it again" in said
    until(lambda: not pids(f"ina.{name}.p1"))
    holder = begun(start("topo", "exec", "p1", "--name", name, "--", "python3", "-c", HOLD), word="held")
    assert "cannot open 10.0.0.5:42592" in bad("run", *on, "--", *EXACT, "100")
    ended(holder, by=signal.SIGKILL)
    good("down", name)


@needs_namespaces
@pytest.mark.filterwarnings("ignore:subprocess .* is still running")  # the server outlives its starter
def test_a_controller_replaces_the_fallback_server_of_another_version() -> None:
    """Found by an upgrade: it held a job of the controller, whose jobs waited for it without an end."""
    name = f"{PREFIX}-v"
    good("up", "single-switch:2", "--name", name, "--program", "shared", "--lanes", 32)
    state = netns.find(name)
    line = [sys.executable, "-c", OLDER, str(state.socket("p1.fallback"))]
    older = begun(subprocess.Popen(line, stdout=subprocess.PIPE, text=True), word="listens")
    with pytest.raises(ProcessFailed, match="refuses this machine: it speaks protocol 3, this end"):
        TestbedFallback(state, "p1", lanes=32)  # its other jobs may be those of other processes
    TestbedFallback(state, "p1", lanes=32, owner="me").stop()
    assert ended(older)[0] == -signal.SIGTERM
    good("down", name)


@needs_namespaces
def test_a_job_of_options_has_its_name_and_priority(tmp_path: Path) -> None:
    """Jobs of a file run here in `test_verbs.py`; what priorities do, `test_shared.py` has."""
    name, jobs = f"{PREFIX}-h", tmp_path / "jobs.toml"
    jobs.write_text("[[job]]\nworkers = 2\ncommand = 'true'\n")
    good("up", "single-switch:4", "--name", name, "--program", "shared", "--lanes", 32)
    one = ("run", name, "-np", 2, "--name", "mine", "--priority", 7, "--json", "--", *EXACT, "100")
    report = json.loads(good(*one))
    assert list(report["jobs"]) == ["mine"]
    assert report["setup"]["jobs"]["mine"]["priority"] == 7
    assert "give --seed to 'ina topo up'" in bad("run", name, "--seed", 1, "--", "true", status=2)
    assert "and --name" in bad("run", name, "--jobs", jobs, "--name", "x", status=2)
    good("down", name)


@needs_namespaces
def test_a_program_for_tofino_sums_on_a_testbed_with_losses() -> None:
    name = f"{PREFIX}-t"
    on = ("--program", "p4src/tna/shared.p4", "--lanes", 32, "--loss", 0.01)
    good("up", "two-racks:2", "--name", name, *on)
    found = metrics(good("run", name, "--json", "--", *EXACT, "5003", "7001"))
    assert found["switch_completed_packets"] > 0
    assert found["resent_packets"] > 0
    good("down", name)


@needs_namespaces
@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_what_waits_on_slow_links_is_not_sent_again(program: str) -> None:
    # a window of 128 packets takes 0.14 s to leave: most wait longer than a time-out of fast links
    on = ("--program", program, "--rate", "8e6")
    found = metrics(good("run", "single-switch:2", "-np", 2, "--json", *on, "--", *EXACT, "200000"))
    assert found["resent_packets"] < found["sent_packets"] / 20


@needs_namespaces
def test_what_was_killed_is_named_and_taken_down() -> None:
    name = f"{PREFIX}-c"
    process = start("topo", "up", "single-switch:1", "--name", name)
    while not namespaces():
        assert process.poll() is None
    ended(process, by=signal.SIGKILL)
    assert f"ina topo down {name}" in bad("up", "single-switch:1", "--name", name)
    assert f"ina topo down {name}" in bad("exec", "h1", "--name", name, "--", "true")
    good("down", name)
    assert namespaces() == []

    process = start("topo", "up", "single-switch:1", "--name", name)
    while not namespaces():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert "interrupted by SIGINT" in process.communicate()[1]
    assert process.returncode == 130
    assert namespaces() == []

    good("up", "single-switch:1", "--name", name, "--lanes", 32)
    holder = begun(start("topo", "exec", "h1", "--name", name, "--", "python3", "-c", HOLD), word="held")
    assert "cannot open 10.0.0.1:42592" in bad("run", name, "--", *EXACT, "100")
    ended(holder, by=signal.SIGKILL)
    state = json.loads((Path(os.environ["INA_TESTBEDS"]) / name / "state.json").read_text())
    os.kill(state["switches"]["s1"], signal.SIGKILL)
    assert "switch s1" in bad("run", name, "--", *EXACT, "100")
    (Path(os.environ["INA_TESTBEDS"]) / name / "state.json").unlink()
    good("down", name)
    assert namespaces() == []


@needs_namespaces
def test_somebody_elses_namespace_is_left_alone() -> None:
    name = f"{PREFIX}-d"
    refused = bad("up", "single-switch:2", "--name", name, "--program", "no", status=2)
    assert "want atp, exclusive, shared, or a file that ends in .p4" in refused
    subprocess.run(["ip", "netns", "add", f"ina.{name}.h1"], check=True)
    try:
        said = bad("up", "single-switch:2", "--name", name)
        assert f"network namespace ina.{name}.h1 already exists" in said
        assert namespaces() == [f"ina.{name}.h1"]
    finally:
        subprocess.run(["ip", "netns", "delete", f"ina.{name}.h1"], check=True)


@needs_namespaces
def test_a_program_of_ones_own_has_the_controllers_forwarding(tmp_path: Path) -> None:
    name = f"{PREFIX}-e"
    source = Path(__file__).parents[2] / "p4src"
    for path in source.rglob("*.p4"):
        place = tmp_path / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path.read_text())
    mine = tmp_path / "exclusive.p4"
    good("up", "single-switch:2", "--name", name, "--p4", mine.rename(tmp_path / "mine.p4"), "--lanes", 32)
    listener = begun(
        start("topo", "exec", "h2", "--name", name, "--", "python3", "-c", HEAR), word="listening"
    )
    good("exec", "h1", "--name", name, "--", "python3", "-c", SAY)
    assert listener.communicate()[0] == "hello\n"
    good("down", name)

    (tmp_path / "bare.p4").write_text(BARE)
    (tmp_path / "broken.p4").write_text(BARE.replace("metadata_t m", "nothing_t m"))
    done = topo("up", "single-switch:1", "--name", name, "--p4", tmp_path / "bare.p4", status=0)
    assert "s1: has no forwarding entries; write your own over P4Runtime at unix:" in done.stderr
    broken = bad("up", "single-switch:1", "--name", f"{name}2", "--p4", tmp_path / "broken.p4", status=3)
    assert "broken.p4:" in broken
    assert "making namespaces" not in broken


@needs_namespaces
def test_that_there_is_no_c_compiler_is_said_before_namespaces_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "nocc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "bare.p4").write_text(BARE)
    missed = bad("up", "single-switch:1", "--name", f"{PREFIX}-f", "--p4", tmp_path / "bare.p4")
    assert "no C compiler: nocc is not on PATH; install one" in missed
    assert "making namespaces" not in missed


@needs_namespaces
@pytest.mark.parametrize("runner", ["netns", pytest.param("mininet", marks=have_mininet)])
def test_a_topology_of_the_tutorials_runs_with_its_own_files(runner: str, tmp_path: Path) -> None:
    name = f"{PREFIX}-x"
    (tmp_path / "wire.p4").write_text(BARE)
    (tmp_path / "topo").mkdir()
    (tmp_path / "topo" / "s1-runtime.json").write_text(
        json.dumps({"target": "bmv2", "p4info": "build/x", "table_entries": [_wire(2, 1), _wire(1, 2)]})
    )
    (tmp_path / "topo" / "s2-commands.txt").write_text("table_add wire to 7 => 3\ntable_add wire to 3 => 7\n")
    topology = tmp_path / "topo" / "topology.json"
    topology.write_text(json.dumps(TUTORIAL))
    at = ("--p4", tmp_path / "wire.p4", "--name", name, "--runner", runner)
    assert "sh -c 'ip route add nonsense'" in topo("up", topology, *at, status=0).stderr
    assert "default via 10.0.1.9 dev eth0" in good("exec", "h1", "--name", name, "--", "ip", "route")
    listener = start(
        "topo", "exec", "h2", "--name", name, "--", "python3", "-c", HEAR.replace(".0.2", ".1.2")
    )
    begun(listener, word="listening")
    good("exec", "h1", "--name", name, "--", "python3", "-c", SAY.replace(".0.2", ".1.2"))
    assert listener.communicate()[0] == "hello\n"
    good("down", name)
    (tmp_path / "topo" / "s2-commands.txt").write_text("table_add wire to 7 => 3\ntable_add none to 3 => 7\n")
    assert "s2-commands.txt: line 2: no table 'none'" in bad("up", topology, *at)
    topology.write_text(json.dumps(TUTORIAL | {"links": [["h1", "s1-p2"], ["h2", "s2-p3", "fast"]]}))
    assert "topology.json" in (said := bad("up", topology, *at, status=2))
    assert 'want a delay such as 5 (ms) or "10us"' in said


def _wire(at: int, to: int) -> dict[str, object]:
    match = {"s.ingress_port": at}
    return {"table": "I.wire", "match": match, "action_name": "I.to", "action_params": {"port": to}}


TUTORIAL: dict[str, object] = {
    "hosts": {
        "h1": {
            "ip": "10.0.1.1/24",
            "mac": "08:00:00:00:01:01",
            "commands": ["ip route add default via 10.0.1.9 dev eth0", "ip route add nonsense"],
        },
        "h2": {"ip": "10.0.1.2/24", "mac": "08:00:00:00:01:02"},
    },
    "switches": {
        "s1": {"runtime_json": "topo/s1-runtime.json"},
        "s2": {"cli_input": "s2-commands.txt"},
    },
    "links": [["s2-p7", "s1-p1", "1ms", 100], ["h1", "s1-p2"], ["h2", "s2-p3"]],
}
HOLD = """
import socket, time
holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
holder.bind(("0.0.0.0", 42592))
print("held", flush=True)
time.sleep(600)
"""
OLDER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    connection = listener.accept()[0]
    connection.sendall(b'{"challenge": "x", "protocol": 3}\\n')
"""
HEAR = """
import socket
listener = socket.create_server(("10.0.0.2", 7000))
print("listening", flush=True)
print(listener.accept()[0].makefile().read(), end="")
"""
SAY = "import socket; socket.create_connection(('10.0.0.2', 7000)).sendall(b'hello\\n')"
BARE = with_ingress("""\
    action to(bit<9> port) { s.egress_spec = port; }
    table wire { key = { s.ingress_port: exact; } actions = { to; } }
    apply { wire.apply(); }
""")


@needs_namespaces
@have_mininet
def test_mininet_ends_when_it_is_killed() -> None:
    name = f"{PREFIX}-m"
    good("up", "single-switch:2", "--runner", "mininet", "--name", name, "--lanes", 32, "--rate", "1e9")
    state = json.loads((Path(os.environ["INA_TESTBEDS"]) / name / "state.json").read_text())
    os.kill(state["switches"]["s1"], signal.SIGKILL)
    assert "switch s1" in bad("run", name, "--", *EXACT, "100")
    for namespace in namespaces():
        inside = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
        for process in inside.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
    good("down", name)
    assert namespaces() == []


@needs_namespaces
@have_mininet
def test_somebody_elses_mininet_starts_our_switch_again_and_is_not_disturbed() -> None:
    name = f"{PREFIX}-n"
    script = Path(__file__).parent / "workers" / "own_mininet.py"
    theirs = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert theirs.stdin is not None
    begun(theirs, word="reached")
    good("up", "single-switch:2", "--runner", "mininet", "--name", name, "--lanes", 32)
    good("down", name)
    output, _ = theirs.communicate("go on\n")
    assert (output, theirs.returncode) == ("reached\n", 0)


SUPERVISE = 'for turn in 1 2 3 4 5; do ip netns exec "$0" sleep 600; done'


@needs_namespaces
def test_a_testbed_goes_down_although_somebody_outside_starts_its_processes_again() -> None:
    name = f"{PREFIX}-f"
    good("up", "single-switch:1", "--name", name, "--lanes", 32)
    host = f"ina.{name}.h1"
    supervisors = [
        subprocess.Popen(["sh", "-c", SUPERVISE, host], stderr=subprocess.DEVNULL) for _ in range(4)
    ]
    try:
        while len(pids(host)) < len(supervisors):
            assert [each.poll() for each in supervisors] == [None] * len(supervisors)
        good("down", name)
        assert namespaces() == []
        for each in supervisors:
            each.wait(60)
    finally:
        for each in supervisors:
            each.kill()
            each.wait()


def pids(namespace: str) -> list[str]:
    return subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True).stdout.split()


def servers(testbed: str) -> list[int]:
    """Process ids of the fallback server at p1 of a testbed, without that of the sums."""
    found = {}
    for each in pids(f"ina.{testbed}.p1"):
        with contextlib.suppress(OSError):
            found[int(each)] = Path(f"/proc/{each}/cmdline").read_bytes()
    return [each for each, command in found.items() if b"ina.run.fallback.testbed" in command]
