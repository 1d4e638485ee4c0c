"""Hostile checkpoints, archives, arrays and texts: nothing in them is run, and a page shows it as text."""

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from scripts.campaign.forked import Command
from scripts.campaign.trials import Trial, kind
from scripts.campaign.world import CHECKPOINT, TRAIN

MARK = "campaign-was-here"
"""The file that hostile code makes in the current folder."""
CODE = f"import pathlib; pathlib.Path({MARK!r}).touch()"
JINJA = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ cycler.__init__.__globals__.os.system('touch " + MARK + "') }}"
)
AUTO = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification", "AutoModelForCausalLM")
PAYLOADS = (
    "<script>xssmark(1)</script>",
    "<img src=x onerror=xssmark(2)>",
    "\"onmouseover='xssmark(3)'x=\"",
    "'onfocus=xssmark(4)x='",
    "</style><svg/onload=xssmark(5)>",
    "]]><!--<iframe/src=javascript:xssmark(6)>-->",
)


class Code:
    """What runs CODE when it is read from a pickle."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return exec, (CODE,)


@kind
def hostile(trial: Trial) -> None:
    """One kind of hostile file, and the commands that read it."""
    name = trial.rng.choice(list(ATTACKS))
    trial.step(f"attack: {name}")
    place = trial.copy("trained")
    ATTACKS[name](trial, place)
    folder = trial.world.folder
    for mark in [*folder.rglob(f"{MARK}*"), *folder.parent.glob(f"{MARK}*")]:
        if mark.is_file():
            trial.complain(f"{name}: {mark} was written")
            mark.unlink()


def _checkpoint(trial: Trial, place: Path) -> Path:
    """A copy of a checkpoint or of the encoder, to be made hostile."""
    source = trial.rng.choice([CHECKPOINT, "encoder"])
    shutil.copytree(place / source, place / "hostile")
    return place / "hostile"


def _use(trial: Trial, place: Path) -> None:
    """Scores, trains and uploads (dry) with the hostile model."""
    commands = (
        ("score", "hostile", "runs/towns/bm25.run", "--collection", "towns", "--out", "hostile.run"),
        (*TRAIN, "--encoder", "hostile", "--name", "hostile", "--fold", "1", "--epochs", "1"),
        ("distill", "hostile", "--config", "towns.toml", "--fold", "1", "--name", "student", "--epochs", "1"),
        ("push", "hostile", "me/towns", "--dry-run"),
    )
    command = Command(trial.rng.choice(commands))
    (ended,) = trial.run(place, command)
    trial.refused(ended, command, (0, 2))


def _pickles(trial: Trial, place: Path) -> None:
    """Files that transformers, torch or numpy would unpickle."""
    folder = _checkpoint(trial, place)
    content = pickle.dumps(Code())
    names = ["pytorch_model.bin", "training_args.bin", "optimizer.pt", "tokenizer.pkl", "head.bin", "adapter_model.bin"]
    for name in names:
        (folder / name).write_bytes(content)
    if trial.rng.random() < 0.7:
        (folder / "model.safetensors").unlink()
    elif trial.rng.random() < 0.5:
        (folder / "model.safetensors").write_bytes(content)
    _use(trial, place)


def _remote_code(trial: Trial, place: Path) -> None:
    """Python files that config.json or tokenizer_config.json names."""
    folder = _checkpoint(trial, place)
    (folder / "evil.py").write_text(CODE + "\nclass Evil: pass\n")
    settings = {
        "config.json": {"auto_map": dict.fromkeys(AUTO, "evil.Evil"), "trust_remote_code": True},
        "tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "trust_remote_code": True},
    }
    for name in trial.rng.choice([["config.json"], ["tokenizer_config.json"], list(settings)]):
        known = json.loads((folder / name).read_text())
        if trial.rng.random() < 0.5:
            known["model_type"] = "evil"
        (folder / name).write_text(json.dumps(known | settings[name]))
    _use(trial, place)


def _templates(trial: Trial, place: Path) -> None:
    """Code in a chat template."""
    folder = _checkpoint(trial, place)
    known = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**known, "chat_template": JINJA}))
    (folder / "chat_template.jinja").write_text(JINJA)
    _use(trial, place)


def _archives(trial: Trial, place: Path) -> None:
    """A zip whose names lead out of its folder, or are links."""
    names = [
        f"../{MARK}",
        f"../../../../{MARK}",
        f"{place}/{MARK}-absolute",
        f"towns/../../{MARK}",
        f"towns/qrels/../../../{MARK}.tsv",
    ]
    with zipfile.ZipFile(place / "archive.zip", "w") as archive:
        for file in sorted((place / "towns").rglob("*.*")):
            archive.write(file, file.relative_to(place))
        for name in trial.rng.sample(names, trial.rng.randint(1, 3)):
            archive.writestr(name, "text")
        if trial.rng.random() < 0.5:
            link = zipfile.ZipInfo("towns/link")
            link.external_attr = 0o120777 << 16
            archive.writestr(link, str(place))
            archive.writestr(f"towns/link/{MARK}-link", "text")
    command = Command(("retrieve", "--collection", "archive.zip"))
    (ended,) = trial.run(place, command)
    trial.refused(ended, command, (0, 2))


def _arrays(trial: Trial, place: Path) -> None:
    """Arrays and states of a folder of runs that are pickles."""
    files = [path for path in (place / "runs").rglob("*") if path.suffix in (".npy", ".bin", ".safetensors", ".json")]
    file = trial.rng.choice(sorted(files))
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(127) + b"\n"
    file.write_bytes((header if file.suffix == ".npy" else b"") + pickle.dumps(Code()))
    trial.step(f"a pickle in {file.relative_to(place)}")
    words = trial.rng.choice([(*TRAIN, "--name", "other"), ("report", "runs/towns"), ("verify", "runs/towns")])
    (ended,) = trial.run(place, Command(words))
    trial.refused(ended, Command(words), (0, 1, 2))


class _Elements(HTMLParser):
    """Collects what a browser would run in a page: scripts, frames, handlers and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or "xssmark" in f"{name}{value if name in ('href', 'src', 'style') else ''}":
                self.active.append(f"<{tag} {name}={value!r}>")
        if tag in ("script", "iframe", "img", "object", "embed"):
            self.active.append(f"<{tag}>")


def _texts(trial: Trial, place: Path) -> None:
    """Markup in ids, titles, texts, queries and settings, and the page about the results."""
    payloads = [trial.rng.choice(PAYLOADS) for _ in range(4)]
    old = json.loads((place / "towns/corpus.jsonl").read_text().splitlines()[0])["_id"]
    for file in [*(place / "towns").rglob("*.*"), *(place / "runs").rglob("*.run"), *(place / "runs").rglob("*.txt")]:
        text = file.read_text()
        hostile_id = payloads[0].replace(" ", "")
        encoded = json.dumps(hostile_id)[1:-1] if file.suffix == ".jsonl" else hostile_id
        file.write_text("".join(_replaced(line, old, encoded, payloads) for line in text.splitlines(keepends=True)))
    (ended,) = trial.run(place, Command(("report", "runs/towns")))
    trial.refused(ended, Command(("report", "runs/towns")), (0, 2))
    for page in (place / "runs").rglob("*.html"):
        elements, text = _Elements(), page.read_text()
        elements.feed(text)
        if "xssmark" not in text:
            trial.complain("the page shows none of the hostile texts")
        if elements.active:
            trial.complain(f"the page has {', '.join(elements.active[:3])}")


def _replaced(line: str, old: str, new: str, payloads: list[str]) -> str:
    """A line with another document id, and markup in its title and texts."""
    if line.startswith("{"):
        row = json.loads(line)
        row["_id"] = json.loads(f'"{new}"') if row["_id"] == old else row["_id"]
        row["text"] = f"{payloads[1]} {row['text']} {payloads[2]}"
        if "title" in row:
            row["title"] = payloads[3] + row["title"]
        return json.dumps(row) + "\n"
    separator = "\t" if "\t" in line else " "
    return separator.join(new if word == old else word for word in line.rstrip("\n").split(separator)) + "\n"


ATTACKS: dict[str, Callable[[Trial, Path], None]] = {
    "pickles": _pickles,
    "remote code": _remote_code,
    "templates": _templates,
    "archives": _archives,
    "arrays": _arrays,
    "texts": _texts,
}
