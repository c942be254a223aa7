"""Experiments on the virtual testbed, one module each: ``ina experiment memory``.

Each writes a page (Markdown) with its tables, its rows (JSON) and plots (SVG). `harness` runs them; `index`
has them by name.
"""
