"""The switch programs and the P4Runtime messages, which both ends of P4Runtime share.

This package imports no other package of this project. `softswitch` and `controller`, which must not import
each other, both import it. The folder also has the P4 sources, as data.
"""
