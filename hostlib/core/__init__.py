"""The worker's side of the protocol without I/O: bytes and a clock in, bytes and timers out.

===================  ==================================================================================
`window`             what a driver calls: begin, emit, absorb, next_timeout, on_timeout
`state`              the state, and the theory of operation
`kernel`             what runs per packet, which is written in C (``hostlib/_native``)
`congestion`         how many packets may be in flight
`watchdog`           when waiting has become pointless
===================  ==================================================================================
"""
