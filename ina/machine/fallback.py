"""The fallback server at a host of a testbed: TESTBED HOST (`ina.runtime.testbed_fallback`)."""

from __future__ import annotations

import json
import sys

from ina.runtime.errors import RunError
from ina.runtime.testbed_fallback import serve

if __name__ == "__main__":
    try:
        serve(sys.argv[1], sys.argv[2], lambda: print(json.dumps({"ready": sys.argv[2]}), flush=True))
    except (RunError, OSError) as error:
        sys.exit(str(error))
