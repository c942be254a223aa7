"""Metrics of a switch's jobs for Prometheus, read from the switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller import Admission, ControllerError, NoProgram, Registration, SwitchSession
from softswitch import MetricsUnknown, metric_family, metric_labels


def render(controller: SwitchSession) -> str:
    """Return the metrics of all jobs in Prometheus' text format.

    Raises MetricsUnknown if the switch does not answer.
    """
    try:
        jobs = controller.jobs() if controller.has_program() else {}
        packets = {job: controller.row_counters(of.counter_row) for job, of in jobs.items()}
    except NoProgram:
        jobs, packets = {}, {}
    except ControllerError as error:
        raise MetricsUnknown(str(error)) from error
    labels = {number: _labels(number, job) for number, job in jobs.items()}
    outcomes = {
        metric_labels(**labels[number], outcome=outcome): count
        for number, counts in packets.items()
        for outcome, count in counts.items()
    }
    lines = metric_family("ina_jobs", "Jobs that the switch serves.", {"": len(jobs)}, "gauge")
    lines += metric_family("ina_job_packets_total", "Packets of the job by outcome.", outcomes)
    for name, meaning, value in _GAUGES:
        found = {metric_labels(**labels[number]): value(job) for number, job in jobs.items()}
        known = {label: number for label, number in found.items() if number is not None}
        lines += metric_family(f"ina_job_{name}", meaning, known, "gauge")
    return "\n".join(lines) + "\n"


def _registration(job: Admission) -> Registration:
    return job.registration or Registration("")


_GAUGES: tuple[tuple[str, str, Callable[[Admission], float | None]], ...] = (
    ("slots", "Slots of the job.", lambda job: job.region.size),
    ("workers", "Workers of the job at this switch.", lambda job: len(job.members)),
    ("age_seconds", "Age of the job at its last renewal.", lambda job: _registration(job).age_s),
    ("renewals", "Renewals of the job's registration.", lambda job: _registration(job).renewals),
    (
        "goodput_bits_per_second",
        "Goodput of a worker in allreduces, at the last renewal.",
        lambda job: _registration(job).goodput_bps,
    ),
)


def _labels(number: int, job: Admission) -> Mapping[str, object]:
    registration = _registration(job)
    return {"job": number, "name": registration.name, "user": registration.user}
