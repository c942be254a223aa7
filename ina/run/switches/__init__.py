"""The switches of a run, started or already running (`fabric`), and the admission of jobs (`admission`).

This package prints nothing.
"""
