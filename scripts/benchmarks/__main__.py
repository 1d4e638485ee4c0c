"""`python -m scripts.benchmarks training|scoring|losses|letor`, from a checkout; `--help` lists the flags of each."""

from scripts.benchmarks.commands import main

main()
