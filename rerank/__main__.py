"""`python -m rerank`, which `accelerate launch -m rerank` runs."""

from rerank.cli.main import main

main()
