"""Calls of functions, methods and externs: which one is meant, and how arguments are passed."""
