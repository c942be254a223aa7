"""Architectures: a program's packages say which it is for, and each is a module or folder here.

Each gives an `Architecture` (`unit`).

`packages` has what they have in common: packages, their blocks, and the parameters of these.
"""
