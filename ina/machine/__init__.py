"""Programs that commands start on other machines; each speaks JSON on its standard output.

=========  =============================================================
`agent`    the ranks of a machine, for ``ina run --hosts``
`facts`    what ``ina doctor`` wants to know of a machine
`probe`    a rank that sums, for ``ina doctor``
=========  =============================================================
"""
