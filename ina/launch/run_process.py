"""``python -m ina.launch.run_process FOLDER``: starts the process of a run (`ina.launch.runner`)."""

from __future__ import annotations

import sys

from ina.quickly import quickly

if __name__ == "__main__":
    with quickly():
        from ina.launch.runner import main
    sys.exit(main(sys.argv[1:]))
