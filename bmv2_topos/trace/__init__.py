"""Analysis of captured packets: the history of a PSN, holders of slots, causes of a slow iteration.

``captures`` reads files, and ``events`` converts their records to events of aggregation packets.
``timeline``, ``slots``, ``overview`` and ``explain`` are pure functions of such events. The virtual testbed
makes the same events (`bmv2_topos.testbeds.virtual.recorder`); for real runs, ``runs`` reads the times of the
ranks' sums.
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
