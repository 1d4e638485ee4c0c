"""A small feature set in LETOR's layout, with something to learn, for tests that train on feature vectors."""

import random
from pathlib import Path

SETTINGS = """
[collection]
source = "letor"
[network]
hidden = 8
[lists]
relevant = "all"
non_relevant = "all"
[training]
epochs = 4
lists_per_epoch = "all"
lists_per_step = 4
lr = 1e-2
measure = "loss"
"""
"""The settings that the tests train with."""

PARTS = {"train": 3, "vali": 1, "test": 1}
"""How many fifths of the queries each file of a fold has."""


def lines_of(query: int, seed: int = 0, features: int = 4) -> list[str]:
    """1 to 9 documents of a query, labels 0 to 2; the first feature tells the label, but for noise."""
    rng = random.Random(f"{seed}-{query}")
    found = []
    for place in range(1 + rng.randrange(9)):
        label = rng.choice([0, 0, 1, 2])
        values = [label + rng.gauss(0, 0.5), *(rng.gauss(0, 1) for _ in range(features - 1))]
        vector = " ".join(f"{number}:{value:.4f}" for number, value in enumerate(values, 1))
        found.append(f"{label} qid:{query} {vector} #docid = d{query}-{place}\n")
    return found


def write_part(path: Path, queries: list[int], seed: int = 0) -> None:
    """One SVMlight file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line for query in queries for line in lines_of(query, seed)))


def write_folds_of_features(folder: Path, queries: int = 30, seed: int = 0) -> Path:
    """Fold1 to Fold5 with train.txt, vali.txt and test.txt."""
    for fold in range(5):
        first = 0
        for part, fifths in PARTS.items():
            chosen = [q for q in range(queries) if (q - fold) % 5 in range(first, first + fifths)]
            write_part(folder / f"Fold{fold + 1}" / f"{part}.txt", chosen, seed)
            first += fifths
    return folder
