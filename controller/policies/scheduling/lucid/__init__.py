"""Lucid: a scheduler that neither preempts nor touches jobs (Hu et al., ASPLOS'23).

The profiler measures a job's `usage`, whose tree classes it, `binder` says which two jobs may share GPUs and
where, `estimates` and `throughput` predict, and `policy` puts it all together; `online` learns while it runs,
and `tuner` looks for better settings. Learned models are plain data, so that only training needs
scikit-learn, interpret or rapidfuzz.
"""
