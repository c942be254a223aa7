"""The command line: what is refused and why, exit codes, JSON."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from select import PIPE_BUF

import pytest

from ina.cli.command import Failure, parse_size, plural, rate, seconds
from tests.system.command import PATIENT, ROOT, finish, good, here, ina, refused, report, worker


def test_run_sums_and_reports() -> None:
    found = report("run", "-np", 3, *PATIENT, "--lanes", 32, *worker("sums.py", "--times", 20))
    assert found["name"] == "run"
    assert found["setup"]["workers"] == 3
    metrics = found["metrics"]
    assert metrics["allreduces"] == 20
    assert metrics["summed_bytes"] == 20 * 5000 * 4
    assert metrics["switch_completed_packets"] > 0
    assert all(isinstance(value, int | float) for value in metrics.values())


@pytest.mark.parametrize("job", ["current()", "current().group([1, 0], 'g')"], ids=["job", "group"])
def test_run_counts_all_calls_of_a_script_that_ends_without_shutdown(job: str) -> None:
    """Ranks report now and then: the summary once had the first call alone, and no calls of groups."""
    script = f"import hostlib\nhostlib.init()\njob = hostlib.{job}\nfor _ in range(50): job.allreduce([1.0])"
    found = report("run", "-np", 2, *PATIENT, "--lanes", 32, "--", sys.executable, "-c", script)["metrics"]
    assert found["allreduces"] == 50
    assert found["switch_completed_packets"] >= 50


def test_n_is_short_for_np_and_a_run_without_sums_tells_of_none() -> None:
    done = good("run", "-n", 2, "--lanes", 32, "--", "sh", "-c", "echo rank")
    assert "[1] rank" in done.stdout
    assert "allreduces" in done.stdout
    for row in ("per worker", " MB in "):
        assert row not in done.stdout


def test_run_without_a_c_compiler_ends_at_once_and_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a checkout: installed packages have the stock programs (`tests/project/test_wheel.py`)."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    errors = refused(
        "run", "-np", 2, "--lanes", 32, *worker("sums.py", "--times", 2, "--length", 500), status=1
    )
    assert "no C compiler: cc is not on PATH; install one (Debian: gcc libc6-dev" in errors
    assert "does not answer" not in errors


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit 3", "exited with status 3"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("kill -35 $$", "killed by SIGRTMIN+1"),
    ],
)
def test_a_failing_worker_is_a_failure_of_the_work_and_its_status_is_said(how: str, said: str) -> None:
    errors = refused("run", "--lanes", 32, "--", "sh", "-c", how, status=1)
    assert errors == f"ina: rank 0 {said}\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("run", "-np", 33, "--", "true"), "33 workers: want 1 to 32 per switch"),
        (("run", "-np", 0, "--", "true"), "0 workers"),
        (("run", "--switch", "bmv2", "--", "true"), "want embedded, grpc://host:port or unix:PATH"),
        (("run", "--switch", "unix:", "--", "true"), "want embedded, grpc://host:port or unix:PATH"),
        (("run", "--switch", "http://h:1", "--", "true"), "want embedded, grpc://host:port or unix:PATH"),
        (
            ("run", "--switch", "unix:/x", "--tls-ca", "/dev/null", "--", "true"),
            "TLS does not work over a Unix socket",
        ),
        (
            ("run", "--switch", "grpc://127.0.0.1:1", "--tls-cert", "/dev/null", "--", "true"),
            "give both or neither",
        ),
        (
            (
                *("run", "--switch", "grpc://127.0.0.1:1", "--tls-cert", "/dev/null"),
                *("--tls-key", "/dev/null", "--", "true"),
            ),
            "--tls-cert needs --tls-ca FILE",
        ),
        (("run", "--switch", "grpc://127.0.0.1:1", "--p4runtime", 5, "--", "true"), "leave --switch out"),
        (("run", "--p4runtime", "here", "--", "true"), "--p4runtime: '127.0.0.1:here' is not an address"),
        (("run", "--tls-ca", "/dev/null", "--", "true"), "--tls-ca is for a running switch"),
        (("run", "--replace-program", "--", "true"), "--replace-program is for a running switch"),
        (("run", "--udp-base", "", "--", "true"), "--udp-base is for a running switch"),
        (("run", "--worker-base", "127.0.0.1:5", "--", "true"), "--worker-base is for a running switch"),
        (("run", "--delay", "1e16", "--", "true"), "--delay 1e+16: want 0 to 1e+12 seconds"),
        (("run", "--queue", 10**13, "--", "true"), "--queue 1e+13: want 1 to 1e+12 packets"),
        (("slots", "--switch", "here"), "--switch 'here': want grpc://host:port or unix:PATH"),
        (("remove", "--switch", "unix:/no/such/socket"), "Missing argument 'JOB...'"),
        (("run", "--switch", "grpc://nowhere", "--", "true"), "not an address of the form host:port"),
        (("slots", "--switch", "::1"), "'::1' is not an address of the form host:port"),
        (("run", "--switch", "grpc://[::1]:1", "--udp-base", "here", "--", "true"), "--udp-base: 'here'"),
        (("run", "--loss", 1.5, "--", "true"), "1.5"),
        (("run", "--nonsense", "--", "true"), "No such option"),
        (("run",), "nothing to run"),
        (
            ("run", "--preempt", "--", "true"),
            "--preempt: the program exclusive gives each job slots of its own; want a program",
        ),
        (
            ("run", "--program", "atp", "--lanes", 32, "--preempt", "--", "true"),
            "--preempt: the program atp has no priorities",
        ),
        (("run", "--slots", 1, "--", "true"), "1 slot: an exclusive job needs at least 2"),
        (("run", "--link-loss", 0.1, "--", "true"), "give --tree, too"),
        (
            ("run", "--tree", "2x4", "--link-loss", 1.1, "--", "true"),
            "--link-loss 1.1: want a probability",
        ),
        (("run", "--tree", "2x4", "--transit", "s9", "--", "true"), "--transit 's9': want one of s2, s3"),
        (("run", "--tree", "2x4", "--switch", "grpc://127.0.0.1:1", "--", "true"), "leave --switch out"),
        (("run", "--jobs", "/no/such/jobs.toml"), "--jobs /no/such/jobs.toml: No such file or directory"),
        (
            ("run", "--jobs", "examples/three_jobs.toml", "-np", 2),
            "COMMAND, with its -np and --name, are mutually",
        ),
        (("switch",), "the switch has no ports; give --port or -i"),
        (("switch", "-i", "veth0"), "-i 'veth0': want N@NAME"),
        (("switch", "-i", "1@veth0", "--port", "1=memory"), "port 1 is given twice"),
        (("switch", "--port", "1=tcp:5"), "want memory, cpu, udp:LOCAL"),
        (("switch", "--port", "1"), "want N=SPEC"),
        (("switch", "--port", "1=udp:0", "--impair", "loss=2"), "probability"),
        (("switch", "--port", "1=udp:0", "--impair", "9:loss=1%"), "the switch has no port 9"),
        (("switch", "--port", "511=udp:0"), "want a port from 0 to 510"),
        (("switch", "--port", "1=udp:0", "--p4runtime", "here"), "--p4runtime: 'here'"),
        (("switch", "--port", "1=udp:0", "--define", "LANES=32"), "--define needs --program"),
        (("switch", "--port", "1=memory", "--log", "/none/x"), "--log /none/x: No such file or directory"),
        (("sim", "examples/sim.toml", "--seed", -1), "--seed"),
        (("bench", "allreduce", "--size", "much"), "'much' is not a size"),
        (("fallback", "--switch", "here"), "--switch: 'here'"),
        (("compile", "exclusive", "--dump", "lower", "--json"), "--dump and --json are mutually exclusive"),
        (("bench", "allreduce", "--dtype", "int32", "--block16"), "--block16 needs --dtype float32"),
        (("bench", "allreduce", "-np", 0), "greater than or equal to 1"),
        (("bench", "allreduce", "-np", "8", "--block8", "--block4"), "at most 7 ranks, and there are 8"),
        (("bench", "allreduce", "--baseline", "nccl"), "'nccl': want some of gloo,openmpi,mpich"),
        (("bench", "allreduce", "--collective", "broadcast", "--block8"), "--block8 needs --collective"),
        (("bench", "allreduce", "--collective", "all-gather", "--size", "12"), "4 shards take at least 16"),
        (("run", "--lease", "inf", "--switch", "unix:/none", "--", "true"), "'--lease'"),
        (("slots", "--device-id", 2**64, "--switch", "unix:/none"), "'--device-id'"),
        (("slots", "--switch", f"unix:/{'a' * 107}"), "want a socket path of at most 107 bytes"),
        (("run", "--jobs", "/dev/zero"), "/dev/zero: cannot be read: not a regular file"),
    ],
)
def test_bad_input_is_refused_with_the_reason(arguments: tuple[object, ...], reason: str) -> None:
    assert reason in " ".join(refused(*arguments).split())


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("run", "--lanes", 48, "--", "true"), 2, "32, 64, 256 values per packet, not 48"),
        (("run", "--program", "nothing", "--", "true"), 2, "there is no program 'nothing'"),
        (
            ("run", "--switch", "grpc://127.0.0.1:1", "--tls-ca", "/no/such/ca.pem", "--", "true"),
            2,
            "--tls-ca /no/such/ca.pem: No such file or directory",
        ),
        (
            ("slots", "--switch", "unix:/no/such/socket"),
            1,
            "no P4Runtime server answers at unix:/no/such/sock",
        ),
        (("run", "--lanes", 32, "--", "/no/such/command"), 1, "cannot run '/no/such/command'"),
        (
            ("run", "--program", "shared", "--lanes", 32, "--slots", 9999, "--", "true"),
            2,
            "9999 slots from 0 exceeds the memory",
        ),
        (("compile", "/no/such/file.p4"), 2, "ina: /no/such/file.p4: No such file or directory"),
    ],
)
def test_what_is_found_wrong_by_another_process_or_on_the_way_is_told(
    arguments: tuple[object, ...], status: int, reason: str
) -> None:
    assert reason in " ".join(refused(*arguments, status=status).split())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("comand = 'true'", "job 'vision': unknown key 'comand'; did you mean 'command'?"),
        ("command = 7", "job 'vision': command = 7: want the program and its arguments"),
        ("workers = 2", "job 'vision': command is missing"),
        ("command = 'true'\nworkers = 40", "job 'vision': 40 workers: want 1 to 32 per switch"),
        ("command = ", "not TOML: Invalid value (at line 3"),
    ],
)
def test_a_bad_job_file_is_refused_with_file_job_and_key(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "jobs.toml"
    workers = "" if "workers" in line else "\nworkers = 2"
    file.write_text(f"[[job]]\nname = 'vision'\n{line}{workers}\n")
    said = refused("run", "--program", "shared", "--jobs", file)
    assert reason in said
    if "40" not in line:  # the file is right, the options are not for it
        assert str(file) in said


def test_a_program_that_does_not_compile_is_shown_with_a_caret(
    write_file: Callable[[str, str], Path],
) -> None:
    source = write_file("broken.p4", "#include <core.p4>\nheader h_t { bit<8 x; }\n")
    said = refused("compile", source, status=3)
    first, line, caret, *_ = said.splitlines()
    assert first.startswith(f"{source}:2:20: ")
    assert line.strip() == "header h_t { bit<8 x; }"
    assert caret.strip() == "^"


def test_a_switch_can_run_the_interpreter() -> None:
    done = ina(
        "switch",
        "--port",
        "1=udp:0",
        "--program",
        "exclusive",
        "--lanes",
        32,
        "--interpret",
        "--until-eof",
        status=0,
    )
    assert json.loads(done.stdout)["program"] == "exclusive"


@pytest.mark.parametrize(
    ("text", "size"), [("64MB", 64 << 20), ("4k", 4096), ("1GiB", 1 << 30), ("1000", 1000), ("1.5 KB", None),
                       ("64GBB", None), ("0", None), ("-1", None), ("1i", None)],
)  # fmt: skip
def test_sizes_are_bytes_in_powers_of_1024(text: str, size: int | None) -> None:
    if size is not None:
        assert parse_size("--size", text) == size
        return
    with pytest.raises(Failure, match=r"--size .* is not a size"):
        parse_size("--size", text)


def test_compile_explains_the_layout() -> None:
    done = here("compile", "exclusive", "--lanes", 32, "--explain", "--json")
    layout = json.loads(done.stdout)["metrics"]["explain"]
    slots = next(group for group in layout["memory"] if len(group["registers"]) > 32)
    assert (slots["slots"], slots["slot_bytes"]) == (8192, 192)
    lookups = {it["table"].rsplit(".", 1)[-1]: (it["key_bits"], it["lookup"]) for it in layout["lookups"]}
    assert lookups["job"] == (16, "hash table")
    assert lookups["shape"][1].startswith("comparisons in code")
    assert layout["lane_loops"] >= layout["vector_loops"] > 0


def test_compile_measures_the_packets_of_a_script() -> None:
    folder = ROOT / "tests/p4/basic_tables"
    script = folder / "packets.stf"
    done = here("compile", folder / "program.p4", "--explain", "--packets", script, "--json")
    times = json.loads(done.stdout)["metrics"]["packets"]
    lines = script.read_text().splitlines()
    assert [it["line"] for it in times] == [n for n, line in enumerate(lines, 1) if line.startswith("packet")]
    assert all(it["ns"] > 0 for it in times)
    assert {it["copies"] for it in times} == {0, 1}
    alone = here("compile", folder / "program.p4", "--packets", script)
    assert (alone.returncode, "--packets needs --explain" in alone.stderr) == (2, True)


def test_compile_tells_errors_as_json(write_file: Callable[[str, str], Path]) -> None:
    source = write_file("bad.p4", "const bit<8> a = b;\nconst bit<8> c = d;\n")
    done = here("compile", source, "--json")
    errors = json.loads(done.stdout)["metrics"]["errors"]
    assert done.returncode == 3
    assert [(it["line"], it["column"], it["severity"]) for it in errors[:2]] == [
        (1, 18, "error"),
        (2, 18, "error"),
    ]
    assert errors[0].keys() == {"file", "line", "column", "severity", "message", "expected"}


def basic_tables() -> str:
    """Return the text of a program, which may be compiled anywhere."""
    path = ROOT / "tests" / "p4" / "basic_tables" / "program.p4"
    return path.read_text().replace('#include "', f'#include "{path.parent}/')


def test_compile_refuses_ids_that_two_objects_have(tmp_path: Path) -> None:
    source = tmp_path / "t.p4"
    whole = basic_tables()
    source.write_text(re.sub(r"(action (?:flood|mirror)\()", r"@id(7) \1", whole))
    done = here("compile", source)
    assert (done.returncode, "have the same @id(0x7)" in done.stderr) == (3, True)


def test_compile_tells_what_depends_on_undefined_behaviour(tmp_path: Path) -> None:
    source = tmp_path / "t.p4"
    whole = basic_tables()
    source.write_text(whole.replace("apply {", "apply { bit<8> unset; if (unset == 1) { return; }", 1))
    done = here("compile", source, "--check-undefined", "--json")
    found = json.loads(done.stdout)["metrics"]["findings"]
    assert done.returncode == 1
    assert [it["message"] for it in found if "nothing has set" in it["message"]]
    assert {"file", "line", "column", "message"} == found[0].keys()


def test_compile_writes_c_and_p4info(tmp_path: Path) -> None:
    c, p4info = tmp_path / "x.c", tmp_path / "x.txtpb"
    assert (
        report("compile", "exclusive", "--lanes", 32, "-o", c, "--p4info", p4info)["metrics"]["tables"] >= 7
    )
    assert "p4_program" in c.read_text()
    assert "InaIngress.admission.job" in p4info.read_text()


def test_the_version_is_that_of_the_package() -> None:
    assert ina("--version", status=0).stdout == f"ina {version('ina')}\n"


def test_an_interrupt_while_the_command_loads_shows_no_traceback() -> None:
    """It comes when grpc is loaded: long before the end, long after the beginning.

    A pipe that holds next to nothing keeps the command from running ahead of who reads it.
    """
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["ina"]
    name, function = entry.split(":")
    process = subprocess.Popen(
        [
            *(sys.executable, "-X", "importtime"),
            *("-c", f"from {name} import {function}; {function}()", "run", "--help"),
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BUF)
    assert any(re.search(r"[|] +grpc$", line) for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, said = finish(process, 128 + signal.SIGINT)
    assert "Traceback" not in said
    assert "ina: interrupted by SIGINT" in said


def test_numbers_agree_with_their_nouns_and_a_table_says_what_it_compares() -> None:
    done = good("bench", "allreduce", "-np", 1, "--size", "4KB", "--iterations", 2)
    assert "allreduce of 4KB of float32, 1 worker, 256 lanes" in done.stdout
    assert "time relative to ina" in done.stdout
    assert (plural(1, "process"), plural(1200, "process"), plural(0, "job")) == (
        "1 process", "1,200 processes", "0 jobs",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ports", "warned"),
    [
        (("1=udp:0", "2=udp:0", "3=memory"), "--port 1, 2: no peer"),
        (("1=udp:0", "2=udp:0:28002", "3=memory"), "--port 1: no peer"),
        (("1=udp:0:28001", "2=memory"), ""),
    ],
)
def test_a_switch_warns_of_ports_that_anybody_can_take(ports: tuple[str, ...], warned: str) -> None:
    done = ina("switch", *(f"--port={port}" for port in ports), "--until-eof", status=0)
    assert done.stderr.count("no peer is given") == bool(warned)
    assert (warned in done.stderr) if warned else done.stderr == ""


def test_an_interrupt_amid_the_end_of_an_object_is_not_lost() -> None:
    """Python drops what a signal's handler raises in a destructor; an interrupted `topo up` went on."""
    script = """
import signal, time
from ina import cli
from ina.cli import commands

class Ending:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def app():
    Ending()
    time.sleep(30)
    print("went on")

commands.app = app
cli.main()
"""
    command = [sys.executable, "-c", script, "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stdout == ""
    assert done.stderr == "ina: interrupted by SIGINT\n"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (rate(999.7e6), "1 Gb/s"),
        (rate(999.4e6), "999 Mb/s"),
        (rate(1.5e12), "1,500 Gb/s"),
        (rate(0), "0 b/s"),
        (seconds(0.9997), "1 s"),
        (seconds(999.6e-6), "1 ms"),
        (seconds(4321), "4,321 s"),
        (seconds(0), "0 ns"),
    ],
)
def test_rates_and_times_have_no_exponents(shown: str, expected: str) -> None:
    """A run showed 1e+03 Mb/s."""
    assert shown == expected
