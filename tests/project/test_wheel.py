"""An installation is the product, all of it and nothing else, and works without a checkout."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from setuptools.dist import Distribution

from softswitch.engine.c_compiler import LEVELS
from tests.project.test_size import PRODUCT, ROOT

BUILT = ("*.so", "__pycache__")


def test_a_wheel_has_every_file_of_the_product_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.parse_config_files(["pyproject.toml"])
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    packed = {Path(file) for _package, _module, file in build.find_all_modules()}
    packed |= {Path(folder, name) for _, folder, _, names in build.data_files for name in names}
    product = {
        path.relative_to(ROOT)
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".so" and "__pycache__" not in path.parts
    }
    assert packed == product


def test_demo_experiment_and_cluster_run_from_an_installed_wheel(tmp_path: Path) -> None:
    source, wheels, site = (tmp_path / name for name in ("source", "wheels", "site"))
    for folder in PRODUCT:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns(*BUILT))
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pip_wheel = [*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), str(source)]
    quick = tmp_path / "cc"  # where the objects are and who finds them is the same, for half of the time
    quick.write_text('#!/bin/sh\nexec cc "$@" -O1\n')
    quick.chmod(0o755)
    subprocess.run(pip_wheel, check=True, timeout=600, env={**os.environ, "CC": str(quick)})
    (wheel,) = wheels.iterdir()
    # what runs compiles the modules that it loads, a tenth of all
    install = [*pip, "install", "--no-deps", "--no-compile", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, timeout=600)

    installed = os.pathsep.join((str(site), sysconfig.get_path("purelib")))
    environment = {**os.environ, "PYTHONPATH": installed}

    def run(*command: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**environment, **variables},
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    modules = (*PRODUCT, "hostlib.demos.digits", "hostlib._native._ina", "controller._native._decide")
    find = (
        "from importlib.util import find_spec; print(*(find_spec(name).origin for name in names), sep='\\n')"
    )
    assert all(Path(line).is_relative_to(site) for line in run("-c", f"names = {modules}; {find}").split())
    # without site, .pth files name no checkout
    assert run("-S", "-c", "from importlib.util import find_spec; print(find_spec('benchmarks'))") == "None\n"
    ranks = (
        *("--lanes", "32", "-np", "2", "--", sys.executable, "-Pc"),
        "import hostlib; hostlib.init(); print(hostlib.allreduce([1.0, 2.0]).tolist()); hostlib.shutdown()",
    )
    assert "[0] [2.0, 4.0]" in run("-m", "ina", "run", *ranks)

    no_compiler = {"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert '"agrees": 1.0' in run("-m", "ina", "demo", "-np", "2", "--json", **no_compiler)
    simulated = (ROOT / "examples" / "sim.toml").read_text()
    (tmp_path / "sim.toml").write_text(simulated.replace("iterations = 200", "iterations = 20"))
    assert '"mean_jct_s"' in run("-m", "ina", "sim", "sim.toml", "--json", **no_compiler)
    objects = [file.stat().st_size for file in site.glob("softswitch/engine/built/*.so")]
    assert len(objects) == 11 * len(LEVELS[platform.machine()]), (
        "engine, simulated turns, three programs of three lanes"
    )
    assert sum(objects) < 2e6

    before = files_of(site)
    shutil.copy(ROOT / "examples" / "losses.py", tmp_path / "own.py")
    assert "| loss | window |" in run("-m", "ina", "experiment", "own.py", "--quick", "--processes", "2")
    assert (tmp_path / "own" / "own.md").exists()
    shutil.copytree(ROOT / "examples" / "cluster", tmp_path / "cluster")
    files = ("--jobs", "cluster/jobs.toml", "--cluster", "cluster/racks.toml")
    assert "fifo-backfill" in run("-m", "ina", "cluster", "simulate", *files, "--processes", "1")
    assert files_of(site) == before, "nothing is written into an installation"


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}
