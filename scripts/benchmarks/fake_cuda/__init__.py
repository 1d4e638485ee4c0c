"""A CUDA device without a GPU: torch's build for CPUs runs fake tensors on `cuda:0` and counts what a GPU would do.

`library` compiles the stub that must be preloaded (LD_PRELOAD) into a process of its own, `fake_device` makes that
process's fake tensors, and `counter` counts kernel launches, bytes, copies and synchronisations.
"""
