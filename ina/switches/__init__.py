"""The switches that serve jobs, started or found running (`fabric`), and a job's entries there (`admission`).

Nothing is printed, as in `ina.launch`.
"""
