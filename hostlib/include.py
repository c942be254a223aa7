"""Print the folder of ``ina_window.h``, for a compiler's ``-I``: ``python -m hostlib.include``."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).parent / "_native")
