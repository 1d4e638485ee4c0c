"""`python -m scripts.campaign --minutes 30`, from a checkout; `--help` lists the flags."""

from scripts.campaign.campaign import main

main()
