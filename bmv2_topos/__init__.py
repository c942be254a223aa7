"""Testbeds that run aggregation on a topology: in virtual time, in namespaces, in Mininet, on BMv2.

``testbeds`` runs topologies; ``scenarios`` runs jobs with faults and checks on topologies; ``soak`` runs
random schedules of jobs and faults; ``trace`` reads captures; ``harness`` runs experiments and writes their
pages.
"""
