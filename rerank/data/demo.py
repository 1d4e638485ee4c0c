"""The generated collection of `rerank demo`: a gazetteer of invented towns.

A query is a town and a subject ("velquingor climate"). All documents of a town name the town and never the subject, so
BM25 retrieves them but cannot rank them. The vocabulary of a subject (frosty, fogs, …) is the evidence of relevance,
which a model can learn from the queries of other towns. One document in ten is long, and its subjects start only after
the 512th token.
"""

import itertools
import json
import random
import re
from pathlib import Path

from rerank.utils.files import atomic_write

TOWNS = 300
EVIDENCE_AFTER = 512  # tokens; each word and each punctuation mark counts as one
LONG_DOCUMENT = (660, 760)  # range of the length in tokens, up to the end of a sentence

Words = tuple[str, str]  # adjectives, nouns

SUBJECTS: dict[str, Words] = {
    "climate": (
        "humid frosty rainy windy sunny misty",
        "storms fogs droughts snowfalls showers clouds breezes blizzards",
    ),
    "cuisine": (
        "spicy roasted salted baked pickled sweet",
        "soups cheeses dumplings pastries sausages stews pies sauces",
    ),
    "transport": (
        "electric punctual crowded paved regional express",
        "trams ferries railways bridges buses tunnels canals stations",
    ),
    "wildlife": (
        "migrating nesting nocturnal feathered shy endangered",
        "herons otters foxes beetles owls badgers lizards falcons",
    ),
}
NO_SUBJECT: Words = (
    "old small quiet wide narrow grey tidy plain",
    "streets houses walls gardens squares corners windows roofs steps gates",
)
SENTENCES = (
    "The {a} {n} and the {m} are well known in {town}.",
    "People in {town} often talk about {n} and {a} {m}.",
    "Travellers write home about the {n}, the {m} and the {b} {o}.",
    "Older residents remember {a} {n} and {b} {m}.",
    "There are more {n} here than {m}, and all of them are {a}.",
    "In the north one hears of {a} {n} and of {m}.",
    "A guide to {town} has two pages on {a} {n} and one on {m}.",
    "Children draw {n}, {a} {m} and {b} {o} at school.",
    "Nobody who has seen the {a} {n} of {town} forgets them.",
    "Beyond the hill there are {a} {n} and a few {m}.",
    "Every letter mentions the {n}, and some mention {a} {m}.",
    "Painters came for the {a} {n} and stayed for the {m}.",
)
SYLLABLES = (
    *("bal", "bren", "cor", "dal", "fen", "gal", "hol", "jor", "kel", "lun", "mar"),
    *("nev", "ost", "pel", "quin", "ras", "sol", "tam", "ul", "vel", "wen", "yar", "zor"),
)
ENDINGS = ("dun", "gor", "mo", "rik", "tha", "vik", "za", "ka")


def make_collection(folder: Path, seed: int = 0) -> None:
    """Writes a collection in BEIR's layout to `folder`, replacing its contents; the same seed gives the same bytes.

    300 queries, one per town, and 20 documents per town, all judged: 2 are about the query's subject only (relevance
    2), 3 about it and one other (1), 9 about one or two others (0) and 6 about none (0). 2 of the 20, one of them
    relevant, are long. Raises UserError if the folder cannot be written.
    """
    rng = random.Random(seed)
    corpus: list[str] = []
    queries: list[str] = []
    judgments = ["query-id\tcorpus-id\tscore\n"]
    # The names have different beginnings, otherwise Porter's stemmer would conflate them.
    starts = [first + second for first in SYLLABLES for second in SYLLABLES if first != second]
    towns = [start + rng.choice(ENDINGS) for start in rng.sample(starts, TOWNS)]
    for number, town in enumerate(towns):
        query_id, subject = f"q{number + 1}", list(SUBJECTS)[number % len(SUBJECTS)]
        queries.append(json.dumps({"_id": query_id, "text": f"{town} {subject}"}) + "\n")
        for subjects, is_long in _plan(subject, rng):
            doc_id = f"d{len(corpus) + 1}"
            text = _text(town, rng.choice(towns), subjects, is_long, rng)
            corpus.append(json.dumps({"_id": doc_id, "title": f"A visit to {town.capitalize()}", "text": text}) + "\n")
            relevance = 3 - len(subjects) if subject in subjects else 0
            judgments.append(f"{query_id}\t{doc_id}\t{relevance}\n")
    with atomic_write(folder) as tmp:
        (tmp / "qrels").mkdir(parents=True)
        for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", judgments)):
            (tmp / name).write_text("".join(lines), encoding="utf-8")


def _plan(subject: str, rng: random.Random) -> list[tuple[list[str], bool]]:
    """The subjects of each of a town's 20 documents, and whether the document is long, in random order."""
    others = [other for other in SUBJECTS if other != subject]
    relevant = [[subject]] * 2 + [[subject, rng.choice(others)] for _ in range(3)]
    irrelevant = [rng.sample(others, 1 + number % 2) for number in range(9)] + [[] for _ in range(6)]
    long_ones = {rng.randrange(5), rng.randrange(5, 20)}
    plan = [(subjects, number in long_ones) for number, subjects in enumerate(relevant + irrelevant)]
    rng.shuffle(plan)
    return plan


def _text(town: str, neighbour: str, subjects: list[str], is_long: bool, rng: random.Random) -> str:
    """Sentences about no subject and about the subjects, shuffled in a short document, in this order in a long one."""
    vocabularies = itertools.cycle([SUBJECTS[subject] for subject in subjects] or [NO_SUBJECT])
    sentences: list[str] = []
    if is_long:
        tokens, end = 0, rng.randint(*LONG_DOCUMENT)
        while tokens < end:
            words = NO_SUBJECT if tokens <= EVIDENCE_AFTER else next(vocabularies)
            sentences.append(_sentence(town, words, rng))
            tokens += len(split_words(sentences[-1]))
    else:
        chosen = [*itertools.islice(vocabularies, 4), *[NO_SUBJECT] * rng.randint(1, 3)]
        sentences = [_sentence(town, words, rng) for words in chosen]
        rng.shuffle(sentences)
        if rng.random() < 0.2:  # a query's candidates then include documents of other towns
            sentences.append(f"The road leads on to {neighbour.capitalize()}.")
    return " ".join(sentences)


def _sentence(town: str, words: Words, rng: random.Random) -> str:
    (a, b), (n, m, o) = rng.sample(words[0].split(), 2), rng.sample(words[1].split(), 3)
    return rng.choice(SENTENCES).format(town=town.capitalize(), a=a, b=b, n=n, m=m, o=o)


def split_words(text: str) -> list[str]:
    """The words and punctuation marks of a text, split as BERT's uncased tokenizer splits English."""
    return re.findall(r"\w+|[^\w\s]", text.lower())
