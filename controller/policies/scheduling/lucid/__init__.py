"""Lucid: a scheduler that neither preempts nor changes jobs (Hu et al., ASPLOS'23).

The profiler measures a job's GPU usage, and a decision tree classifies it (`usage`). `binder` says which two
jobs may share GPUs, `estimates` predicts durations, `throughput` predicts arrivals, and `policy` combines
these parts. `online` learns while it runs, and `tuner` searches for better settings. Learned models are plain
data, so that only training needs scikit-learn, interpret or rapidfuzz.
"""
