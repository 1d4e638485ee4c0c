"""A model made to run code, to fill the memory or to hang when it is read: nothing is run, and the end is one line."""

import contextlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.models.bi_encoder import BiEncoder
from rerank.models.reranker import Reranker
from rerank.utils.errors import UserError
from tests.support.small_collection import failed
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

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


SIZES = ("num_hidden_layers", "num_labels", "vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings")


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("size", [10**6, 10**9, 10**18])
def test_a_size_that_no_weight_has_is_refused_before_anything_is_allocated(tmp_path, key, size):
    for make, load in ((make_cross_encoder, Reranker.load), (make_encoder, BiEncoder.load)):
        model = make("bert", tmp_path / make.__name__, WORDS, max_positions=24)
        change(model / "config.json", **{key: size})
        with pytest.raises(UserError):
            load(str(model))


def test_weights_whose_header_states_more_than_the_file_has_are_refused(tmp_path):
    model = make_cross_encoder("bert", tmp_path / "model", WORDS, max_positions=24)
    file = model / "model.safetensors"
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    for changed in ({"shape": [10**9, 10**9]}, {"shape": "all"}, {"data_offsets": [0, 10**15]}, {"shape": [-1]}):
        text = json.dumps(header | {name: header[name] | changed}).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
        with pytest.raises(UserError, match=r"model\.safetensors"):
            Reranker.load(model)
    for bad in (b"", b"\xff" * 8, (2**62).to_bytes(8, "little"), (10).to_bytes(8, "little") + b"[" * 10):
        file.write_bytes(bad)
        with pytest.raises(UserError, match=r"model\.safetensors|header|JSON"):
            Reranker.load(model)


@pytest.mark.parametrize("number", [10**9, 10**30, -1])
@pytest.mark.parametrize("place", ["vocab", "added_tokens"])
def test_an_id_of_a_token_beyond_every_vocabulary_is_refused(tmp_path, number, place):
    """The tokenizer would count up to it."""
    for make, load in ((make_cross_encoder, Reranker.load), (make_encoder, BiEncoder.load)):
        file = make("bert", tmp_path / make.__name__, WORDS, max_positions=24) / "tokenizer.json"
        content = json.loads(file.read_text())
        if place == "vocab":
            content["model"]["vocab"][WORDS[0]] = number
        else:
            content["added_tokens"][0]["id"] = number
        file.write_text(json.dumps(content))
        with pytest.raises(UserError, match="tokenizer"):
            load(str(file.parent))


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_out(path: Path) -> None:
    (path.parent.parent / "outside").touch()
    path.symlink_to(path.parent.parent / "outside")


@pytest.mark.parametrize("make", [os.mkfifo, link_to_zeros, link_out])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_file_of_a_model_that_is_no_regular_file_is_refused(here, capsys, make, name):
    model = make_cross_encoder("bert", here / "model", WORDS, max_positions=24)
    (model / name).unlink(missing_ok=True)
    make(model / name)
    for words in (SCORE, TRAIN):
        assert failed(capsys, *words).startswith("rerank: ")


EXAMPLES = int(os.environ.get("RERANK_EXAMPLES", "0")) or 12
WRONG = (None, True, -1, 10**12, 1.5, "x", [], ["x"], {}, {"x": "y"}, [[]])
FILES = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.json", "modules.json")
KNOWN = {
    "config.json": ("rerank", "architectures", "model_type", "id2label", "label2id", "sentence_transformers", "dtype"),
    "tokenizer_config.json": ("model_max_length", "tokenizer_class", "pad_token", "model_input_names", "chat_template"),
    "special_tokens_map.json": ("pad_token", "sep_token", "additional_special_tokens"),
    "modules.json": (),
}


def wrong_types(model: Path, rng: random.Random) -> str:
    """Gives a file of a model another type somewhere, and says where."""
    name = rng.choice(FILES)
    file, value = model / name, rng.choice(WRONG)
    content = json.loads(file.read_text()) if file.exists() else {}
    place = content
    key = rng.choice(sorted({*place, *KNOWN.get(name, ())} | {""})) if isinstance(place, dict) else ""
    if key and isinstance(place.get(key), dict) and place[key] and rng.random() < 0.7:
        place, key = place[key], rng.choice(sorted(place[key]))
    if key:
        place[key] = value
    file.write_text(json.dumps(content if key else value))
    return f"{name}: {key or 'all of it'} = {value!r}"


@pytest.mark.parametrize("trial", range(EXAMPLES))
def test_wrong_types_in_the_files_of_a_model_are_one_line(tmp_path, trial):
    rng = random.Random(f"types {trial}")
    recorded = {"pooling": "max", "max_doc_tokens": 50, "head": {"form": "pair", "scale": 1, "dense": "bert"}}
    model = (make_cross_encoder if trial % 2 else make_encoder)("bert", tmp_path / "model", WORDS, max_positions=24)
    change(model / "config.json", rerank=recorded)
    what = wrong_types(model, rng)
    for use in (lambda: Reranker.load(model).score("a", ["b"]), lambda: BiEncoder.load(model).encode_documents(["b"])):
        try:
            with contextlib.suppress(UserError):
                use()
        except Exception as error:
            pytest.fail(f"{what}: {type(error).__name__}: {error}")


def test_control_characters_in_names_reach_no_terminal(here, capsys):
    name = "a\x1b[31m\u202eb"
    shutil.copytree("towns", name)
    (Path(name) / "qrels" / f"{name}.tsv").touch()
    shutil.copy("runs/towns/bm25.run", f"{name}.run")
    main(["retrieve", "--collection", name])
    said = capsys.readouterr().err
    main(["eval", f"{name}.run", "--qrels", "runs/towns/qrels.txt"])
    said += capsys.readouterr().out
    assert said.count("a\\x1b[31m\\u202eb") >= 2
    assert not {"\x1b", "\u202e"} & set(said)


def test_the_attacks_would_work(here):
    pickle.loads(pickle.dumps(Code()))
    assert list(here.rglob(MARK))
