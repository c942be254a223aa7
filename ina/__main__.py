"""Runs the command line as ``python -m ina``."""

from ina.cli import main

main()
