"""`python -m scripts.gpu_check`, from a checkout; `--help` lists its flags."""

from scripts.gpu_check.report import main

main()
