"""`python -m scripts.benchmarks`."""

from scripts.benchmarks.commands import main

main()
