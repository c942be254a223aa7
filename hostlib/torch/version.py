"""The versions of torch that this package works with."""

from __future__ import annotations

import importlib
import re
import warnings
from typing import Final

OLDEST: Final = (2, 13)
NEWEST: Final = (2, 14)
"""Process groups in Python are no stable interface of torch: each version has to be tried."""


def check() -> None:
    """Raise ImportError if torch is missing or too old; warn of one that has not been tried."""
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
    wanted = f"hostlib.torch needs torch {oldest} to {newest}"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"{wanted}, and cannot import any ({error}): pip install 'ina[torch]'") from error
    version = str(getattr(torch, "__version__", "unknown"))
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise ImportError(f"{wanted}, this is torch {version}: pip install 'ina[torch]'")
    if (int(found[1]), int(found[2])) > NEWEST:
        warnings.warn(f"{wanted}; torch {version} has not been tried", stacklevel=3)
    if not importlib.import_module("torch.distributed").is_available():
        raise ImportError(f"{wanted} built with torch.distributed, which this torch {version} is not")
