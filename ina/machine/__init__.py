"""Programs that commands start on other machines; each speaks JSON on its standard output.

==========  ============================================================
`agent`     the ranks of a machine, for ``ina run --hosts``
`facts`     what ``ina doctor`` wants to know of a machine
`fallback`  the fallback server at a host of a testbed, for all its jobs
`probe`     a rank that sums, for ``ina doctor``
==========  ============================================================
"""
