"""Lucid's public simulator."""
