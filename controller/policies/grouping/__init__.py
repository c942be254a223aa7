"""Grouping jobs that share GPUs in turns: the stages of their iterations interleave (Muri, SIGCOMM'22).

Pure algorithms. Their input is the jobs' stage times; they do not depend on clusters, queues or the time:

- `matching`: maximum-weight matching of many jobs in pairs;
- `rounds`: the efficiency of a group (gamma), and the order of stages that makes it highest; Muri's rounds of
  matching, which make groups of at most k jobs for k resources (`rounds.group`); groups of the highest total
  worth to all waiting jobs, which are ours (`rounds.group_by_worth`).
"""
