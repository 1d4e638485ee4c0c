"""Kernels for CPUs in C, which the system's compiler compiles once for the processor at hand."""
