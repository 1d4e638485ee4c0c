"""`python -m scripts.campaign --minutes 30`, from a checkout; `--help` lists the flags."""

from scripts.campaign.commands import main

main()
