"""How long training takes on a cluster, before it runs: a model of time, and what it recommends.

Pure functions of numbers; only `measure` runs anything. The equations are in docs/time-model.md.
"""
