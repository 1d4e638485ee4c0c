"""`python -m rerank`, which `accelerate launch -m rerank` runs."""

from rerank.cli import main

main()
