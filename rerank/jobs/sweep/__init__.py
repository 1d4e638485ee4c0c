"""Sweeps: a grid of settings, trained in parallel processes, and a table of the best cells.

Knows nothing of training itself: a cell is an ordinary experiment.
"""
