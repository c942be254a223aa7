"""The worker's side of the protocol without I/O: bytes and a clock in, bytes and timers out.

===================  ==================================================================================
`driver`             what every loop around a window does, over sockets or in virtual time
`window`             what a driver calls: begin, emit, absorb, next_timeout, on_timeout
`state`              the state, and the theory of operation
`kernel`             what runs per packet, which is written in C (``hostlib/_native``)
`congestion`         how many packets may be in flight
`watchdog`           when waiting has become pointless
===================  ==================================================================================
"""
