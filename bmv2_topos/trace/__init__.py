"""Packets made visible: one packet's life, the holders of slots, and the causes of a slow iteration.

``captures`` reads files, ``events`` converts them to events of our packets, the rest are pure functions
of such events: ``timeline``, ``slots``, ``explain``. The virtual testbed makes the same events
(`bmv2_topos.testbeds.virtual.recorder`); of real runs, ``runs`` reads who summed what when.
"""

from bmv2_topos.trace.captures import CaptureError, Record, read_file, read_files
from bmv2_topos.trace.events import Event, events_of
from bmv2_topos.trace.explain import Cause, JobFacts, Sum, Verdict, explain
from bmv2_topos.trace.overview import JobSeen, overview
from bmv2_topos.trace.runs import LogError, read_run, unseen
from bmv2_topos.trace.slots import Tenure, tenures
from bmv2_topos.trace.timeline import Timeline, timeline

__all__ = [
    "CaptureError",
    "Cause",
    "Event",
    "JobFacts",
    "JobSeen",
    "LogError",
    "Record",
    "Sum",
    "Tenure",
    "Timeline",
    "Verdict",
    "events_of",
    "explain",
    "overview",
    "read_file",
    "read_files",
    "read_run",
    "tenures",
    "timeline",
    "unseen",
]
