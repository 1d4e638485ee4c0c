"""The tiny world of the campaign: a collection, feature vectors, an encoder, states of runs/, and reference results."""

import json
import operator
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.campaign.contents import contents
from scripts.campaign.forked import MAIN, Command, Ended, Forked

QUERIES, DOCUMENTS = 9, 6
"""Queries of the collection, and how many of each one's documents are kept."""
FOLDS = 3

SETTINGS = f"""
[collection]
source = "towns"
folds = {FOLDS}
[encoder]
name = "encoder"
max_doc_tokens = 60
[training]
epochs = 2
lists_per_epoch = 8
lists_per_step = 4
lr = 1e-3
[pretraining]
held_out = 3
validate_every = 2
"""
FEATURES = """
[collection]
source = "letor"
[network]
hidden = 8
[lists]
relevant = "all"
non_relevant = "all"
[training]
epochs = 3
lists_per_epoch = "all"
lists_per_step = 4
lr = 1e-2
"""
GRID = """
config = "letor.toml"
fold = "1"
[[grid]]
"training.lr" = [1e-2, 1e-3]
"""
TRAIN = ("train", "--config", "towns.toml")
FIRST = (*TRAIN, "--fold", "1")
CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"


@dataclass(frozen=True)
class Case:
    """A command, and the state of the folder that it begins in."""

    state: str
    words: tuple[str, ...]


CASES = {
    "retrieve": Case("new", ("retrieve", "--collection", "towns")),
    "train in a new folder": Case("new", FIRST),
    "train": Case("retrieved", FIRST),
    "train all folds": Case("retrieved", (*TRAIN, "--epochs", "1")),
    "resume": Case("unfinished", FIRST),
    "final": Case("retrieved", (*TRAIN, "--fold", "final")),
    "train with pre-training": Case("retrieved", (*FIRST, "--pretraining.steps", "4")),
    "pretrain": Case(
        "retrieved", ("pretrain", "--config", "towns.toml", "--pretraining.steps", "4", "--out", "pretrained")
    ),
    "distil": Case("trained", ("distill", CHECKPOINT, "--config", "towns.toml", "--fold", "1", "--name", "student")),
    "score": Case("trained", ("score", CHECKPOINT, "runs/towns/bm25.run", "--out", "new.run")),
    "score what BM25 finds": Case("trained", ("score", CHECKPOINT, "--depth", "3", "--out", "new.run")),
    "report": Case("trained", ("report", "runs/towns")),
    "plot": Case("trained", ("plot", "learning", "runs/towns/smoothi", "--out", "chart.pdf")),
    "eval": Case("trained", ("eval", "runs/towns/bm25.run", "runs/towns/smoothi/all.run")),
    "verify": Case("trained", ("verify", "runs/towns")),
    "push": Case("trained", ("push", CHECKPOINT, "me/towns", "--dry-run")),
    "features": Case("new", ("train", "--config", "letor.toml", "--fold", "1")),
    "sweep": Case("new", ("sweep", "grid.toml", "--workers", "2")),
}
"""The commands that faults happen to, by name."""

STATES = {
    "retrieved": ("new", CASES["retrieve"].words, MAIN, 0),
    "unfinished": ("retrieved", FIRST, "scripts.campaign.world:train_one_epoch", 130),
    "trained": ("retrieved", TRAIN, MAIN, 0),
    "features trained": ("new", CASES["features"].words, MAIN, 0),
    "shared": ("trained", (), "scripts.campaign.world:keep_the_checkpoint", 0),
}
"""How each state is made: from another one, by the words of a command or of a function, which ends with this code."""


class UndisturbedError(Exception):
    """A command that failed although nothing was done to it."""


@dataclass(frozen=True)
class Reference:
    """What an undisturbed command prints and leaves, and how long it takes."""

    ended: Ended
    contents: dict[str, str]


class World:
    """The folder of a campaign, the process that its commands are forked from, and what is made once.

    Commands run in `home`, as parsed feature vectors are named by the place of their file. It exists during a trial.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        for name in ("states", "trials", "temporary", "cache"):
            (folder / name).mkdir(parents=True)
        (folder / "temporary").chmod(0o777)
        self._references: dict[tuple[str, ...], Reference] = {}
        cache = str(folder / "cache")  # torch would have its own in the folder for temporary files
        caches = {"XDG_CACHE_HOME": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        self.forked = Forked({"TMPDIR": str(folder / "temporary"), **caches})

    def state(self, name: str) -> Path:
        """A folder in this state, which is made when it is first asked for and never changed."""
        place = self._place(name)
        if name == "new" and not place.exists():
            self._begin(place)
        elif not place.exists():
            before, words, call, code = STATES[name]
            shutil.copytree(self.state(before), self.home)
            self._expect(Command(words, call), code)
            self.home.rename(place)
        return place

    def reference(self, case: Case) -> Reference:
        """What the case's command does, undisturbed."""
        key = (case.state, *case.words)
        if key not in self._references:
            shutil.copytree(self.state(case.state), self.home)
            ended = self._expect(Command(case.words), 0)
            self._references[key] = Reference(ended, contents(self.home))
            shutil.rmtree(self.home)
        return self._references[key]

    def close(self) -> None:
        """Ends the process that commands are forked from."""
        self.forked.close()

    def _begin(self, place: Path) -> None:
        """Writes the world, and has the process that commands are forked from import what they import."""
        from rerank.data.trec import read_qrels, write_run

        write_world(place)
        warm = self._place("warm")
        shutil.copytree(place, warm)
        write_run(warm / "first.run", read_qrels(warm / "towns/qrels/test.tsv"), "first")  # type: ignore[arg-type]
        train = (*FIRST, "--first-stage.run", "first.run")
        plot = ("plot", "gain", "runs/towns/smoothi", "--out", "chart.pdf")
        self.forked.warm_up(warm, train, ("verify", "runs/towns"), ("report", "runs/towns"), plot)

    def _place(self, name: str) -> Path:
        return self.folder / "states" / name

    def _expect(self, command: Command, code: int) -> Ended:
        (ended,) = self.forked.run(self.home, command)
        if ended.code != code:
            raise UndisturbedError(f"{command}: exit code {ended.code}, expected {code}: {ended.out}{ended.err}")
        return ended


def write_world(folder: Path) -> None:
    """Writes the collection `towns`, the feature vectors `letor`, the encoder, two configurations and a grid."""
    from rerank.data.demo import make_collection
    from rerank.models.tiny_bert import make_encoder

    with tempfile.TemporaryDirectory() as name:
        make_collection(Path(name) / "towns")
        texts = _keep_some(Path(name) / "towns", folder / "towns")
    make_encoder(folder / "encoder", texts)
    settings = json.loads((folder / "encoder/config.json").read_text())
    (folder / "encoder/config.json").write_text(json.dumps({**settings, "hidden_dropout_prob": 0.1}))
    write_features(folder / "letor", random.Random(0))
    for name, content in (("towns.toml", SETTINGS), ("letor.toml", FEATURES), ("grid.toml", GRID)):
        (folder / name).write_text(content)


def write_features(folder: Path, rng: random.Random, queries: int = 15) -> None:
    """Fold1 to Fold5 with train.txt, vali.txt and test.txt, as LETOR has them; the first feature tells the label."""
    lines = {}
    for query in range(queries):
        rows = []
        for place in range(rng.randint(2, 7)):
            label = rng.choice([0, 0, 1, 2])
            values = [label + rng.gauss(0, 0.5), rng.gauss(0, 1), rng.gauss(0, 1)]
            vector = " ".join(f"{number}:{value:.4f}" for number, value in enumerate(values, 1))
            rows.append(f"{label} qid:{query} {vector} #docid = d{query}-{place}\n")
        lines[query] = "".join(rows)
    for fold in range(5):
        (folder / f"Fold{fold + 1}").mkdir(parents=True)
        for part, fifths in (("train", (0, 1, 2)), ("vali", (3,)), ("test", (4,))):
            chosen = [lines[query] for query in range(queries) if (query - fold) % 5 in fifths]
            (folder / f"Fold{fold + 1}" / f"{part}.txt").write_text("".join(chosen))


def train_one_epoch(words: list[str]) -> None:
    """The command line, interrupted once the state of an epoch is saved."""
    from rerank.cli.main import main
    from rerank.training import saving

    save = saving.save_state

    def save_and_stop(*arguments: object) -> None:
        save(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    saving.save_state = save_and_stop  # type: ignore[assignment]
    main(words)


def keep_the_checkpoint(_: list[str]) -> None:
    """Leaves a trained model in the folder, and nothing else of its runs."""
    shutil.move(CHECKPOINT, "model")
    shutil.rmtree("runs")


def _keep_some(source: Path, target: Path) -> list[str]:
    """Copies the first queries of the demo's collection and some documents of each; gives all texts."""
    judged: dict[str, list[str]] = {}
    for line in (source / "qrels/test.tsv").read_text().splitlines()[1:]:
        judged.setdefault(line.split("\t")[0], []).append(line)
    chosen = list(judged)[:QUERIES]
    grade = operator.itemgetter(-1)  # one digit at the end of the line
    kept = {query_id: sorted(judged[query_id], key=grade, reverse=True)[::3][:DOCUMENTS] for query_id in chosen}
    ids = {line.split("\t")[1] for lines in kept.values() for line in lines} | set(kept)
    (target / "qrels").mkdir(parents=True)
    rows = ["query-id\tcorpus-id\tscore", *(line for lines in kept.values() for line in lines)]
    (target / "qrels/test.tsv").write_text("\n".join(rows) + "\n")
    texts = []
    for name in ("corpus.jsonl", "queries.jsonl"):
        lines = [line for line in (source / name).read_text().splitlines() if json.loads(line)["_id"] in ids]
        (target / name).write_text("\n".join(lines) + "\n")
        texts += [f"{row.get('title', '')} {row['text']}" for row in map(json.loads, lines)]
    return texts
