"""Finds experiments: the object named ``EXPERIMENT`` of a file or a module."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from bmv2_topos.harness.errors import BadExperiment
from bmv2_topos.harness.model import Experiment
from bmv2_topos.harness.study import Study
from controller import plugins

NAME: Final = "EXPERIMENT"


@cache
def load(source: str) -> Experiment:
    """Return the experiment or study of a file, ``own.py``, or of a module, ``package.module``.

    A file can import modules beside it. An experiment without a name gets its file's name.

    Raises:
        BadSpec: there is no such file or module, or it cannot be imported.
        BadExperiment: the file or module has no experiment, or an invalid one.
    """
    if not plugins.is_source(source):
        raise BadExperiment(f"{source!r} is neither a Python file (own.py) nor a module (package.module)")
    if source.endswith(".py") and (folder := str(Path(source).absolute().parent)) not in sys.path:
        sys.path.append(folder)
    found = getattr(plugins.module(source), NAME, None)
    if found is None:
        raise BadExperiment(f"{source} has no {NAME}; it must be a Study or an Experiment")
    stem = Path(source).stem if source.endswith(".py") else source.rpartition(".")[2]
    match found:
        case Study():
            return found.experiment(stem, source)
        case Experiment():
            return replace(found, name=found.name or stem, source=source)
        case _:
            kind = type(found).__name__
            raise BadExperiment(f"{source}: {NAME} is a {kind}; it must be a Study or an Experiment")
