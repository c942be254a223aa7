"""Packets made visible: one packet's life, the holders of slots, and the causes of a slow iteration.

``captures`` reads files, ``events`` converts them to events of our packets, the rest are pure functions
of such events: ``timeline``, ``slots``, ``explain``. The virtual testbed makes the same events
(`bmv2_topos.testbeds.virtual.recorder`); of real runs, ``runs`` reads who summed what when.
"""

from bmv2_topos.trace.captures import CaptureError, Record, read_file, read_files
from bmv2_topos.trace.events import Event, events_of
from bmv2_topos.trace.explain import Cause, IterationPath, Sum, TracedJob, explain
from bmv2_topos.trace.overview import JobOverview, overview
from bmv2_topos.trace.runs import LogError, missing_captures, read_run
from bmv2_topos.trace.slots import Tenure, tenures
from bmv2_topos.trace.timeline import Timeline, timeline

__all__ = [
    "CaptureError",
    "Cause",
    "Event",
    "IterationPath",
    "JobOverview",
    "LogError",
    "Record",
    "Sum",
    "Tenure",
    "Timeline",
    "TracedJob",
    "events_of",
    "explain",
    "missing_captures",
    "overview",
    "read_file",
    "read_files",
    "read_run",
    "tenures",
    "timeline",
]
