"""The native parts: files and programs that pyproject.toml cannot list."""

import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

NATIVE = Path("hostlib/_native")
RINGS = Path("softswitch/engine/runtime/shared_ring.h")  # what ranks and switch agree on
DECIDE = Path("controller/_native")
PROGRAMS = Path("p4src")
LANES = (32, 64, 256)  # p4src.programs.LANES
TURNS = "hostlib/_native/ina_core.h+bmv2_topos/testbeds/virtual/turns.c"  # of 'ina sim', in one text
PREBUILT = "softswitch/engine/built"


class BuildWithPrograms(build_py):
    """Builds what the product compiles into wheels; a source checkout builds each when it is first used."""

    def run(self) -> None:
        """Copy the modules, then build the programs beside them."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, PREBUILT).absolute()
            programs = (f"{path}:{lanes}" for path in sorted(PROGRAMS.glob("*.p4")) for lanes in LANES)
            command = [sys.executable, "-m", "softswitch.engine.build", str(folder), *programs, TURNS]
            subprocess.run(command, check=True)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return what `run` writes."""
        built = map(str, Path(self.build_lib, PREBUILT).glob("*.so"))
        return [*super().get_outputs(include_bytecode), *built]


setup(
    cmdclass={"build_py": BuildWithPrograms},
    ext_modules=[
        Extension(
            "hostlib._native._ina",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, [*NATIVE.glob("*.h"), RINGS])),
            include_dirs=[str(RINGS.parent)],
            extra_compile_args=["-O3", "-std=gnu11"],
        ),
        Extension(
            "controller._native._decide",
            sources=sorted(map(str, DECIDE.glob("*.c"))),
            depends=sorted(map(str, DECIDE.glob("*.h"))),
            extra_compile_args=["-O3", "-std=gnu11", "-ffp-contract=off"],  # rounds as Python does
        ),
    ],
)
