"""The tiny world of the campaign: a collection, feature vectors, an encoder, states of runs/, and reference results."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.campaign.contents import contents
from scripts.campaign.processes import RERANK, Command, Ended, run_together
from tests.support.small_collection import write_collection, write_encoder
from tests.support.small_features import SETTINGS as FEATURES
from tests.support.small_features import write_folds_of_features

QUERIES = 9
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
"""
GRID = """
config = "letor.toml"
fold = "1"
[[grid]]
"training.lr" = [1e-2, 1e-3]
"""
STAGES = """
[stages.bm25]
kind = "bm25"
[stages.dense]
kind = "dense"
encoder = "encoder"
[stages.kept]
kind = "run"
file = "kept.run"
[stages.fusion]
kind = "fusion"
of = ["bm25", "dense", "kept"]
[stages.answer]
kind = "neighbours"
of = "fusion"
"""
TRAIN = ("train", "--config", "towns.toml")
FIRST = (*TRAIN, "--fold", "1")
CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"
PIPELINE = "runs/towns/pipeline"
OWN_INDEX = "runs/towns/index"
INDEX = "index"
FIT = ("fit", "towns", "--pipeline", "stages.toml")
FITS = {"fitted": FIT, "fitted on an index": (*FIT, "--first-stage.index", INDEX)}
"""The commands that fit a pipeline, by the state that each leaves."""
RANK = ("score", PIPELINE, "--out", "answer.run")


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
    "distil": Case("trained", ("distill", CHECKPOINT, "--config", "towns.toml", "--fold", "1", "--name", "student")),
    "score": Case("trained", ("score", CHECKPOINT, "runs/towns/bm25.run", "--out", "new.run")),
    "score what BM25 finds": Case("trained", ("score", CHECKPOINT, "--depth", "3", "--out", "new.run")),
    "report": Case("trained", ("report", "runs/towns")),
    "plot": Case("trained", ("plot", "learning", "runs/towns/smoothi", "--out", "chart.pdf")),
    "eval": Case("trained", ("eval", "runs/towns/bm25.run", "runs/towns/smoothi/all.run")),
    "verify": Case("trained", ("verify", "runs/towns")),
    "features": Case("new", ("train", "--config", "letor.toml", "--fold", "1")),
    "sweep": Case("new", ("sweep", "grid.toml", "--workers", "2")),
}
"""The commands that faults happen to, by name."""

THREADS = (sys.executable, "-m", "scripts.campaign.threads")
STATES = {
    "retrieved": ("new", CASES["retrieve"].words, RERANK, 0),
    "unfinished": ("retrieved", FIRST, (sys.executable, "-m", "scripts.campaign.world"), 130),
    "trained": ("retrieved", TRAIN, RERANK, 0),
    "searchable": ("trained", (), THREADS, 0),
    **{state: ("retrieved", words, RERANK, 0) for state, words in FITS.items()},
}
"""How a state is made: from another one, by the words of a program, which ends with this exit code."""


class UndisturbedError(Exception):
    """A command that failed although nothing was done to it."""


@dataclass(frozen=True)
class Reference:
    """What an undisturbed command prints and leaves, and how long it takes."""

    ended: Ended
    contents: dict[str, str]


class World:
    """The folder of a campaign, and what is made once.

    Commands run in `home`, as parsed feature vectors are named by the place of their file. It exists during a trial.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.temporary = folder / "home", folder / "temporary"
        for name in ("states", "trials", "temporary", "cache"):
            (folder / name).mkdir()
        self._references: dict[Case, Reference] = {}

    def run(self, place: Path, *commands: Command) -> list[Ended]:
        """Runs commands together in a folder, with folders of the campaign for temporary files and for caches."""
        cache = str(self.folder / "cache")  # torch would have its own in the folder for temporary files
        caches = {"XDG_CACHE_HOME": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        return run_together(place, commands, {"TMPDIR": str(self.temporary), **caches})

    def state(self, name: str) -> Path:
        """A folder in this state, which is made when it is first asked for and never changed."""
        place = self.folder / "states" / name
        if place.exists():
            return place
        if name == "new":
            write_world(place)
        elif name == "shared":  # has a trained model, and nothing else of its runs
            shutil.copytree(self.state("new"), place)
            shutil.copytree(self.state("trained") / CHECKPOINT, place / "model")
        elif name == "of other documents":
            write_world(self.home, seed=1)
            self._expect(Command(CASES["retrieve"].words), 0)
            self.home.rename(place)
        else:
            before, words, program, code = STATES[name]
            shutil.copytree(self.state(before), self.home)
            self._expect(Command(words, program), code)
            if name == "retrieved":
                shutil.copytree(next((self.home / OWN_INDEX).glob("*/")), self.home / INDEX)
            self.home.rename(place)
        return place

    def reference(self, case: Case) -> Reference:
        """What the case's command does, undisturbed."""
        if case not in self._references:
            shutil.copytree(self.state(case.state), self.home)
            ended = self._expect(Command(case.words), 0)
            self._references[case] = Reference(ended, contents(self.home))
            shutil.rmtree(self.home)
        return self._references[case]

    def _expect(self, command: Command, code: int) -> Ended:
        (ended,) = self.run(self.home, command)
        if ended.code != code:
            raise UndisturbedError(f"{command}: exit code {ended.code}, expected {code}: {ended.out}{ended.err}")
        return ended


def write_world(folder: Path, seed: int = 0) -> None:
    """Writes the collection `towns`, feature vectors `letor`, an encoder, configurations, a grid, stages and a run."""
    write_collection(folder / "towns", QUERIES, seed=seed)
    write_encoder(folder / "encoder")
    write_folds_of_features(folder / "letor", 15)
    run = [f"q{q} Q0 d{q}-{place} {place + 1} {6 - place}.0 kept\n" for q in range(QUERIES) for place in range(6)]
    files = {"towns.toml": SETTINGS, "letor.toml": FEATURES, "grid.toml": GRID, "stages.toml": STAGES}
    for name, content in (files | {"kept.run": "".join(run)}).items():
        (folder / name).write_text(content)


def train_one_epoch(words: list[str]) -> None:
    """The command line, interrupted once the state of an epoch is saved."""
    from rerank.cli.main import main
    from rerank.training import loop

    save = loop.save_state

    def save_and_stop(*arguments: object) -> None:
        save(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    loop.save_state = save_and_stop  # type: ignore[assignment]
    main(words)


if __name__ == "__main__":
    train_one_epoch(sys.argv[1:])
