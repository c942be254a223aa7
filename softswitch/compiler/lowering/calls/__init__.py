"""Calls of functions, methods and externs: which one is meant, and what becomes of it."""
