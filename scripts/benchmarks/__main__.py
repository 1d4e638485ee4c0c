"""`python -m scripts.benchmarks training|scoring|losses|letor|heads`, from a checkout; `--help` lists their flags."""

from scripts.benchmarks.commands import main

main()
