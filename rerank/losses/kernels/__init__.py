"""Kernels: the losses' formulas in less time and memory, most of them with analytic gradients.

Values and gradients are those of the plain formulas up to rounding. Knows nothing of the register of losses.
"""
