"""A folder with documents alone: titles and bodies of three sentences in words that a tiny encoder knows."""

import json
import random
from pathlib import Path

from tests.support.small_world import WORDS

NAMES = [first + second for first in WORDS[:10] for second in WORDS[10:16]]
"""A name of its own for each of 60 documents, in its title and in its first and last sentence."""


def write_documents(folder: Path, titles: bool = True, count: int = 40, seed: int = 0) -> Path:
    """Writes corpus.jsonl, and neither queries nor judgments."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as out:
        for number, name in enumerate(NAMES[:count]):
            said = [" ".join(rng.choices(WORDS, k=rng.randint(5, 9))) for _ in range(3)]
            title = f"{name} {rng.choice(WORDS)} {rng.choice(WORDS)}" if titles else ""
            body = f"{name} {said[0]}. {said[1]}. {said[2]} {name}."
            out.write(json.dumps({"_id": f"d{number}", "title": title, "text": body}) + "\n")
    return folder
