"""`python -m scripts.benchmarks COMMAND`, from a checkout; `--help` lists the commands and their flags."""

from scripts.benchmarks.commands import main

main()
