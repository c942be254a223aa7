"""Goes on as root where only root can go on: the same command once more, through ``sudo``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from hostlib.launch import command_line

KEPT = ("INA_TESTBEDS", "INA_CONTROLLER", "NO_COLOR")
"""Environment variables that the command keeps, besides `SETTINGS`: sudo has an environment of its own."""


def again_as_root(why: str) -> str:
    """Replace this process by the same command, run by root; return why that cannot be.

    The command is run by this interpreter, wherever root's search path leads.
    """
    from hostlib.launch.launcher import SETTINGS, environment

    kept = [f"{name}={text}" for name, text in environment((*SETTINGS, *KEPT)).items()]
    command = ["env", *kept, *command_line.module("ina", *sys.argv[1:])]
    sudo = shutil.which("sudo")
    if sudo is None:
        return f"{why}. There is no sudo here; as root, run {shlex.join(command)}"
    print(f"ina: {why}: going on with sudo", file=sys.stderr, flush=True)
    try:
        os.execv(sudo, [sudo, "--", *command])
    except OSError as error:
        return f"{why}; {sudo}: {error.strerror}"
