"""Kernels compute the losses' formulas in less time and memory, most of them with analytic gradients.

Values and gradients equal those of the plain formulas up to rounding. Kernels do not use the registry of losses.
"""
