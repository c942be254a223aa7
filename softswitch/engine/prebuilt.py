"""Objects that are built with the package, for machines without a C compiler: the engine and stock programs.

``python -m softswitch.engine.prebuilt FOLDER`` builds them, as ``setup.py`` does for wheels, for each of the
`LEVELS` of the processors here. An object's name has the hash of the text that it was built of: one of other
sources is never found.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "built"
LEVELS: Final = {
    "x86_64": (
        ("x86-64-v3", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])),
        ("x86-64", frozenset[str]()),
    ),
    "aarch64": (("armv8-a", frozenset[str]()),),
}
"""By machine, what ``-march`` objects are built for, the best one first, and the flags that it asks of a
processor (``/proc/cpuinfo``)."""


def find(content: str) -> Path | None:
    """Return the best object for this processor of the text with this hash; None: none was built."""
    return next((file for level in levels() if (file := FOLDER / f"{content}-{level}.so").exists()), None)


@cache
def levels() -> tuple[str, ...]:
    """Return the levels whose objects this processor can run, the best one first."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}
    return tuple(level for level, needs in LEVELS.get(platform.machine(), ()) if needs <= flags)


def build_all(folder: Path) -> None:
    """Build the engine and all programs of p4src, of all lanes, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as processes:
        for _ in processes.map(_build, [folder] * len([*_stock()]), _stock()):
            pass


def _stock() -> Iterator[tuple[str, int] | None]:
    from p4src.programs import FOLDER as PROGRAMS
    from p4src.programs import LANES

    yield None  # the engine
    yield from ((path.stem, lanes) for path in sorted(PROGRAMS.glob("*.p4")) for lanes in LANES)


def _build(folder: Path, stock: tuple[str, int] | None) -> None:
    from p4src.programs import source_of
    from softswitch.compiler import compile_file
    from softswitch.engine.build import FLAGS, compile_c, content_hash, find_compiler
    from softswitch.engine.emit_c.program import emit_c
    from softswitch.engine.engine_build import ENGINE_FLAGS, engine_text

    text, flags = engine_text(), tuple[str, ...](ENGINE_FLAGS)
    if stock is not None:
        source, defines = source_of(*stock)
        text, flags = emit_c(compile_file(source, defines=defines)), FLAGS
    for level, _ in LEVELS.get(platform.machine(), ()):
        target = folder / f"{content_hash(text, flags)}-{level}.so"
        of_level = [flag.replace("-march=native", f"-march={level}") for flag in flags]
        compile_c([find_compiler(), *of_level, "-s"], text, target)
        target.chmod(0o644)


if __name__ == "__main__":
    build_all(Path(sys.argv[1]))
