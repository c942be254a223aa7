"""Testbeds that run aggregation on a topology: in virtual time, in namespaces, in Mininet, on BMv2.

``testbeds`` runs topologies, ``scenarios`` jobs, faults and checks on them, ``soak`` random schedules;
``trace`` reads captures; ``harness`` runs experiments and writes their pages.
"""
