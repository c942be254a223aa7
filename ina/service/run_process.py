"""``python -m ina.service.run_process FOLDER``: starts the process of a run (`ina.service.runner`)."""

from __future__ import annotations

import sys

from ina.runtime.quickly import quickly

if __name__ == "__main__":
    with quickly():
        from ina.service.runner import main
    sys.exit(main(sys.argv[1:]))
