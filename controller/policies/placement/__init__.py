"""Placement: policies that choose jobs' servers, and the steady-state rates from which they choose."""
