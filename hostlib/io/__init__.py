"""Sockets: what moves a window's packets for real; only here the host library blocks and reads a clock."""
