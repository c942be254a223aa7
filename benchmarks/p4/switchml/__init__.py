"""SwitchML's published program for Tofino on the embedded switch, beside this project's own.

====================  ===================================================================
module                contents
====================  ===================================================================
`client`              a client of BF Runtime
`links`               workers over UDP, a session's entries, and a switch, in virtual time
`compare`             the page: the same allreduce by SwitchML's program and by `exclusive`
====================  ===================================================================

The program is not part of this project: give its folder, ``dev_root/p4`` of
github.com/p4lang/p4app-switchML.
"""
