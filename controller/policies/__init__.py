"""Policies of scheduling, placement, memory, routing and grouping: functions and classes without I/O.

- `registry`: all of them by name, users' own included;
- `family`: what belongs to a scheduling policy: its speed model, its decision interval and its settings;
- `settings`: settings of placement, memory and routing, and the defaults;
- `joint`: a scheduler that also chooses servers and trees.

Policies that place jobs are in `placement`. `scheduling.placement` is no policy: it finds free GPUs for
schedulers that choose servers themselves.
"""
