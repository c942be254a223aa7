"""Experiments on the virtual testbed, one module each: ``python -m bmv2_topos.experiments.memory``.

Each writes a page (Markdown) with its tables, its rows (JSON) and plots (SVG) to ``docs/results``; with
``--quick`` it runs for seconds. `harness` runs them.
"""
