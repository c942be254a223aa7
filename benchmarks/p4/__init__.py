"""Checks of the compiler and of programs for Tofino: others' programs, tests and clients, random programs."""
