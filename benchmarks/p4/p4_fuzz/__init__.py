"""Fuzzing of the embedded switch by malformed programs, packets and P4Runtime messages.

========== ===================================================== ============================================
kind       a case is                                             a defect is
========== ===================================================== ============================================
programs   a program with some tokens damaged, compiled          any exception but a refusal with a place
packets    a program built with sanitizers, random entries,      a report of the address or undefined-
           a few hundred frames                                  behaviour sanitizer, any exception
messages   a P4Runtime service and a hundred messages            an exception in the service, no answer, a
                                                                 service that does not go on
========== ===================================================== ============================================

``python -m benchmarks.p4.p4_fuzz --help`` runs them. Cases are tried in a process of their own, which is
watched from outside (`watch`): a case that ends it, or hangs, is a defect, too.
"""
