"""The native part: it has as many files as there are, which pyproject.toml cannot say."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("hostlib/_native")
DECIDE = Path("controller/_native")

setup(
    ext_modules=[
        Extension(
            "hostlib._native._ina",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            extra_compile_args=["-O3", "-std=gnu11"],
        ),
        Extension(
            "controller._native._decide",
            sources=sorted(map(str, DECIDE.glob("*.c"))),
            depends=sorted(map(str, DECIDE.glob("*.h"))),
            extra_compile_args=["-O3", "-std=gnu11", "-ffp-contract=off"],  # rounds as Python does
        ),
    ]
)
