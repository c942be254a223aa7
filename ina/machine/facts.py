"""Facts of this machine, for ``ina doctor``: IP PORT, those of its workers."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from ina.runtime.machine_facts import Facts

if __name__ == "__main__":
    print(json.dumps(asdict(Facts.here(sys.argv[1], int(sys.argv[2])))))
