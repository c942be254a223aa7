"""What processes that tests start find before all other modules."""

import os
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
PATH: Final = os.pathsep.join((str(FOLDER), str(FOLDER.parents[1])))
"""``PYTHONPATH`` of a process that needs the modules of this checkout, wherever it runs."""
