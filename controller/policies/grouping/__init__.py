"""Grouping jobs that share GPUs in turns: the stages of their iterations interleave (Muri, SIGCOMM'22).

Pure algorithms, which know stage times and nothing of clusters, queues or time:

- `efficiency`: how well a group interleaves (gamma) and in which order of stages it does so best;
- `matching`: maximum-weight matching of many jobs in pairs;
- `rounds`: Muri's rounds of matching, which make groups of up to as many jobs as there are resources;
- `worth`: groups of the highest total worth to all waiting jobs (ours).
"""
