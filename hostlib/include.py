"""Prints where ``ina_window.h`` is, for a compiler's ``-I``: ``python -m hostlib.include``."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).parent / "_native")
