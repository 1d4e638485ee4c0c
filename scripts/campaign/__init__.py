"""Faults, damage, neighbours and hostile input, at random: tries to break rerank, and reports what broke.

`python -m scripts.campaign --minutes 30 --seed 1` from a checkout; docs/reliability.md says what is promised.
"""
