"""What docs show works: terminal sessions, in the order in which they stand there, and guides' programs."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import hostlib
from bmv2_topos.testbeds.netns import bmv2
from hostlib.collectives import KEYS
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import NETNS, NO_NAMESPACES, needs_namespaces
from tests.system.command import PATIENT, ROOT, good, here, ina, until
from tests.system.console import make_folder, needs_root, run_step, steps
from tests.system.controllers import Controller

# --------------------------------------------------------------------- the terminal sessions of docs


NO_BMV2 = NO_NAMESPACES or bmv2.missing()
BMV2 = [pytest.mark.netns, pytest.mark.bmv2, pytest.mark.skipif(bool(NO_BMV2), reason=NO_BMV2)]


def text_of(*pages: str) -> str:
    return "\n".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in pages)


def steps_of(*pages: str) -> list[tuple[str, list[str]]]:
    return [*steps(text_of(*pages))]


def test_captures(tmp_path: Path) -> None:
    missing = "tshark" if shutil.which("tshark") is None else None
    ran = [step for step in steps_of("guides/tracing", "guides/captures") if step[0].split()[0] != missing]
    folder = make_folder(tmp_path)
    for step in ran:
        run_step(folder, *step)
    assert len(ran) >= 8


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_windows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "p4src").symlink_to(ROOT / "p4src")  # as in a clone, where the examples find it
    for step in (ran := steps_of("guides/own-rules")):
        run_step(folder, *step)
    assert len(ran) == 6


# ------------------------------ docs/tutorials/first-sum.md, first-p4-program.md, second-p4-program.md

TUTORIAL = [
    *(step for step in steps_of("tutorials/first-sum") if "switch" in step[0]),  # the others have other tests
    *steps_of("tutorials/first-p4-program", "tutorials/second-p4-program"),
]


def part(command: str) -> str:
    if "bmv2" in command or "reference" in command:
        return "bmv2"
    return "testbed" if needs_root(command) or "testbed" in command else "everywhere"


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after all that needs no root."""
    made = make_folder(tmp_path_factory.mktemp("tutorial"))
    try:
        ran = [run_step(made, *step) for step in TUTORIAL if part(step[0]) == "everywhere"]
    finally:
        # the pages end their switches themselves, if every step has run
        subprocess.run(["sh", "-c", "kill $(cat *.pid)"], cwd=made, capture_output=True, check=False)
    assert len(ran) == 49
    return made


def test_the_tutorial_without_root(tutorial: Path) -> None:
    assert all(
        (tutorial / made).exists() for made in ("mine/include/lanes.p4", "ours/include/path_control.p4")
    )


def test_forged_packets_of_the_soak_are_made_of_what_hosts_send(tutorial: Path) -> None:
    """Frames between switches have the page's header behind their lanes: one of these ended the soak."""
    run_step(tutorial, "ina soak --program ours/shared.p4 --replay 100", ["all invariants held"])


@pytest.mark.parametrize("name", [pytest.param("testbed", marks=NETNS), pytest.param("bmv2", marks=BMV2)])
@pytest.mark.usefixtures("beds")
def test_the_tutorial_with_root(name: str, tutorial: Path) -> None:
    try:
        ran = [run_step(tutorial, *step) for step in TUTORIAL if part(step[0]) == name]
    finally:
        here("topo", "down", "--all")
    assert len(ran) == 8


# ----------------------------------------------------------------- docs/tutorials/first-testbed.md


@pytest.mark.parametrize("name", [pytest.param("embedded", marks=NETNS), pytest.param("bmv2", marks=BMV2)])
@pytest.mark.skipif(shutil.which("ping") is None, reason="needs ping")
@pytest.mark.usefixtures("beds")
def test_the_first_testbed(name: str, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    folder = make_folder(tmp_path / "page")
    ran = [step for step in steps_of("tutorials/first-testbed") if ("bmv2" in step[0]) == (name == "bmv2")]
    try:
        for step in ran:
            run_step(folder, *step)
    finally:
        here("topo", "down", "--all")
    assert len(ran) == (3 if name == "bmv2" else 10)


# --------------------------------------------------------------------------- docs/guides/testbeds.md

LINES = [
    line
    for _, block in re.findall(
        r"^```(\w*)\n(.*?)^```",
        text_of("guides/testbeds", "guides/mininet", "guides/scenarios"),
        flags=re.DOTALL | re.MULTILINE,
    )
    for line in block.splitlines()
    if line.startswith(("ina topo ", "ina scenario "))
]
PRIVILEGED = [line for line in LINES if needs_root(line)]


def run_lines(lines: list[str], folder: Path) -> list[str]:
    """Run commands of the page; return what each has written."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(folder))
        try:
            for line in lines:
                words = [sys.executable if word == "python" else word for word in shlex.split(line)[1:]]
                done = (ina if "exec" in words else here)(*words, status=0)
                said.append(done.stdout + done.stderr)
        finally:
            if any(map(needs_root, lines)):
                here("topo", "down", "--all")
    return said


@needs_namespaces
def test_a_testbed_goes_from_up_to_down(tmp_path: Path) -> None:
    lines = [line for line in PRIVILEGED if "bmv2" not in line]
    assert [line.split()[2] for line in lines] == ["up", "exec", "run", "down", "run"]
    said = run_lines(lines, tmp_path)
    assert "10.0.0.1/16" in said[1]
    assert "test accuracy 0.9" in said[2]
    assert "FAILED" not in said[4]


@pytest.mark.netns
@pytest.mark.bmv2
@pytest.mark.skipif(bool(NO_BMV2), reason=NO_BMV2)
def test_so_does_one_of_bmv2(tmp_path: Path) -> None:
    lines = [line for line in PRIVILEGED if "bmv2" in line]
    assert [line.split()[2] for line in lines] == ["up", "run", "down"]
    assert "test accuracy 0." in run_lines(lines, tmp_path)[1]


@pytest.mark.parametrize("line", [line for line in LINES if line not in PRIVILEGED])
def test_what_needs_no_root_runs(line: str, tmp_path: Path) -> None:
    if "draw" in line:
        pytest.importorskip("matplotlib")
    assert run_lines([line], tmp_path) != [""]


@needs_namespaces
@pytest.mark.skipif(shutil.which("mnexec") is None, reason="no Mininet: apt-get install mininet")
def test_switches_end_with_mininet(tmp_path: Path) -> None:
    """A script that ended without `net.stop()` left its switches running."""
    (start,) = re.findall(r"```python\n(.*?)net\.stop\(\)\n```", text_of("guides/mininet"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", f"{start}print(net['s1'].process.pid)"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "0% dropped" in done.stdout + done.stderr
    until(lambda: not Path(f"/proc/{done.stdout.split()[-1]}/exe").exists())  # a process not reaped has none


# --------------------------------------------------------------------------- docs/guides/controller.md


def check_answers(controller: Controller) -> None:
    """Check what a real service answers about jobs that are over; its shapes are in `test_api.py`."""
    with controller.client() as client:
        divisions = [each for of in client.memory()["switches"].values() for each in of]
        assert "urgent" in {share["job"] for each in divisions for share in each["shares"]}
        metrics = client._http.get("/metrics").text.splitlines()
        assert 'ina_controller_jobs{state="completed"} 3' in metrics
        assert client._http.get("/readyz").status_code == 200


@needs_namespaces
@pytest.mark.usefixtures("beds")
def test_from_an_empty_machine_to_three_jobs_of_a_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tmp_path, [])
    (tmp_path / "page").mkdir()
    folder = make_folder(tmp_path / "page")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        try:
            for command, shown in steps_of("tutorials/first-shared-cluster"):
                if command.startswith("export "):
                    monkeypatch.setenv("INA_CONTROLLER", controller.url)
                    continue
                command = command.replace("--testbed lab", f"--testbed lab --listen {controller.url}")
                run_step(folder, command, shown)
                if "--testbed lab" in command:
                    until(controller.serves)
                    assert supervisor.recv(4096).decode() == f"READY=1\nSTATUS=serving at {controller.url}"
                if command.startswith("ina audit"):
                    check_answers(controller)
        finally:
            here("topo", "down", "--all")
        until(lambda: not (tmp_path / "api").exists())  # until it has ended in good order
        assert supervisor.recv(4096).startswith(b"STOPPING=1")
    written = (folder / "controller.log").read_text()
    assert re.search(r"info +\[decision=\d+ event=started jobs=urgent\] on (2 GPUs|GPU .*): ", written)


# --------------------------------------------------------------------- the programs of guides


PAGE = text_of(*(f"guides/{name}" for name in ("hostlib", "numbers", "errors", "priorities")))
TORCH_PAGE = text_of(*(f"guides/{name}" for name in ("torchrun", "torch-launchers", "torch-errors")))
HOROVOD_PAGE = text_of("guides/horovod")


def programs(page: str) -> dict[str, str]:
    """Return a page's programs by their commands; a block without a command goes on with the one before."""
    found: dict[str, str] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        first = re.match(r"# ((?:ina run|python) .*)\n", block)
        command = first[1] if first else list(found)[-1]
        found[command] = found.get(command, "") + block
    return found


PROGRAMS = programs(PAGE)


@pytest.mark.parametrize(
    ("command", "text"),
    [*PROGRAMS.items(), *programs(TORCH_PAGE).items(), *programs(HOROVOD_PAGE).items()],
    ids=lambda text: text[:40],
)
def test_a_program_of_a_guide_runs(command: str, text: str, tmp_path: Path) -> None:
    if "import torch" in text and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    *words, name = shlex.split(command)
    script = tmp_path / name
    script.write_text(text)
    if words == ["python"]:
        subprocess.run([sys.executable, script], check=True, cwd=ROOT)
        return
    assert words[:2] == ["ina", "run"]
    assert words[-2:] == ["--", "python"]
    good(*words[1:-2], *PATIENT, "--", sys.executable, script)


def test_the_table_of_counters_has_each_key_once() -> None:
    lines = PAGE.split("## Counters")[1].split("\n## ")[0].splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("| `")]
    assert sorted(re.findall("`(.*?)`", " ".join(rows))) == sorted(KEYS)


def test_the_programs_show_most_of_the_library() -> None:
    text = "".join(PROGRAMS.values())
    missing = {name for name in hostlib.__all__ if name.islower() and f"ina.{name}" not in text}
    alike = {f"{name}_async" for name in ("reduce", "reduce_scatter", "all_gather", "broadcast")}
    assert missing <= alike | {"is_initialized", "statistics", "window_for"}


def test_the_guide_names_every_error() -> None:
    assert {
        name
        for name, value in vars(hostlib).items()
        if isinstance(value, type) and issubclass(value, Exception) and f"`{name}`" not in PAGE
    } <= {"InaError"}


@pytest.mark.parametrize("name", ["hostlib", "torchrun"])
def test_the_contents_of_a_guide_are_its_sections(name: str) -> None:
    page = text_of(f"guides/{name}")
    assert re.findall(r"^- \[(.*?)\]\(#", page, re.MULTILINE) == re.findall(r"^## (.*)$", page, re.MULTILINE)


def test_the_guide_to_torch_names_every_variable() -> None:
    variables = set(re.findall(r"INA_[A-Z0-9_]+", (ROOT / "hostlib/settings.py").read_text(encoding="utf-8")))
    assert len(variables) >= 5
    assert {name for name in variables if f"| `{name}` |" not in TORCH_PAGE} == set()
