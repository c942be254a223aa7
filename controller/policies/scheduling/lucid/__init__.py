"""Lucid: a scheduler that neither preempts nor changes jobs (Hu et al., ASPLOS'23).

`usage` has the job's GPU usage as the profiler measures it, the decision tree that classifies it, and the
prediction of arrivals. `estimates` predicts durations, also learning while it runs (`estimates.OnlineLucid`).
`policy` is the profiler, the binder, which says which two jobs may share GPUs, and the scheduling policy that
combines all parts. `family` makes the policies by name, reads measurements, and searches for better settings
(`family.tune_settings`). Learned models are plain data, so that only training needs scikit-learn, interpret
or rapidfuzz.
"""
