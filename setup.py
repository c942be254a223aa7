"""The native part, which has as many files as there are: pyproject.toml cannot say that."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("hostlib/_native")

setup(
    ext_modules=[
        Extension(
            "hostlib._native._ina",
            sources=sorted(map(str, NATIVE.glob("*.c"))),
            depends=sorted(map(str, NATIVE.glob("*.h"))),
            extra_compile_args=["-O3", "-std=gnu11"],
            optional=True,  # without a C compiler numpy serves: slower, with a warning
        )
    ]
)
