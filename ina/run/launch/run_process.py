"""``python -m ina.run.launch.run_process FOLDER``: starts the process of a run (`ina.run.launch.runner`)."""

from __future__ import annotations

import sys

from ina.quickly import quickly

if __name__ == "__main__":
    with quickly():
        from ina.run.launch.runner import main
    sys.exit(main(sys.argv[1:]))
