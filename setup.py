"""The native parts: one has as many files as there are, which pyproject.toml cannot say."""

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
        ),
        Extension(
            "controller.simulator.replicas.muri._blossom",
            sources=["controller/simulator/replicas/muri/blossom.c"],
            # a fused multiplication would round differently from Python, and so break ties differently
            extra_compile_args=["-O3", "-std=gnu11", "-ffp-contract=off"],
            optional=True,  # without a C compiler the replica of Muri's public simulator cannot group
        ),
    ]
)
