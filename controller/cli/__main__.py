"""Runs the command line as ``python -m controller.cli``."""

from controller.cli import main

main()
