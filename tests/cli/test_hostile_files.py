"""A model made to run code when it is read: nothing in it is run."""

import contextlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from rerank.cli.main import main
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder

MARK = "hostile-code-was-here"
"""The file that hostile code makes in the current folder."""
CODE = f"import pathlib; pathlib.Path({MARK!r}).touch()"
JINJA = f"{{{{ cycler.__init__.__globals__.os.system('touch {MARK}') }}}}"
AUTO = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification")
SCORE = ("score", "model", "runs/towns/bm25.run", "--depth", "2", "--collection", "towns", "--out", "new.run")
TRAIN = ("train", "--config", "towns.toml", "--encoder", "model", "--fold", "1", "--epochs", "1")


class Code:
    """What runs CODE when it is read from a pickle."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return exec, (CODE,)


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def pickles(model: Path) -> None:
    """Files that transformers, torch or numpy may unpickle, in the place of the weights."""
    (model / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "training_args.bin", "tokenizer.pkl", "head.bin", "adapter_model.bin"):
        (model / name).write_bytes(pickle.dumps(Code()))


def remote_code(model: Path) -> None:
    """A module that the settings of the model and of the tokenizer name."""
    (model / "evil.py").write_text(f"{CODE}\nclass Evil: pass\n")
    change(model / "config.json", auto_map=dict.fromkeys(AUTO, "evil.Evil"), trust_remote_code=True)
    tokenizer = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    change(model / "tokenizer_config.json", auto_map=tokenizer, trust_remote_code=True)


def remote_model_type(model: Path) -> None:
    """The same, with a type that transformers does not have."""
    remote_code(model)
    change(model / "config.json", model_type="evil")


def templates(model: Path) -> None:
    """Code in a chat template."""
    change(model / "tokenizer_config.json", chat_template=JINJA)
    (model / "chat_template.jinja").write_text(JINJA)


@pytest.mark.parametrize("attack", [pickles, remote_code, remote_model_type, templates])
def test_code_in_a_model_is_not_run(here, attack):
    attack(make_cross_encoder("bert", here / "model", WORDS, max_positions=24))
    for words in (SCORE, TRAIN):
        with contextlib.suppress(SystemExit):
            main(words)
    assert not list(here.rglob(f"*{MARK}*"))


def test_the_attacks_would_work(here):
    pickle.loads(pickle.dumps(Code()))
    assert list(here.rglob(MARK))
