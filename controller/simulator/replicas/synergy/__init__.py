"""Synergy's public simulator (msr-fiddle/synergy, commit 1bb2bed)."""
