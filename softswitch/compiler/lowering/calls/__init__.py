"""Calls of functions, methods and externs: resolution of the callee, and passing of arguments."""
