"""How fast a controller is: a real daemon, with real switches over P4Runtime, whose jobs run no programs.

`process` is the controller that is measured, in a process of its own; `measure` starts it and ten switches,
and asks it over HTTP as people do; `clients` are those people.
"""
