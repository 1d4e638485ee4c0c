"""The files of a model's folder that transformers and sentence-transformers read, by name; the rest is never copied."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from rerank.utils.inside import inside
from rerank.utils.json_files import read_json

MODULES_FILE = "modules.json"  # sentence-transformers' layers of a bi-encoder
ROUTER_FILE = "router_config.json"  # of a module that has others in its folder
CONFIGS = (
    *("config.json", MODULES_FILE, "config_sentence_transformers.json", ROUTER_FILE, "generation_config.json"),
    *(f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlnet")),
    *("lstm_config.json", "cnn_config.json", "wordembedding_config.json", "idf.json"),
    *("adapter_config.json", "artifact.metadata", "whitespacetokenizer_config.json", "phrasetokenizer_config.json"),
)
TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "bpe.codes", "dict.txt", "entity_vocab.json", "byte_maps.json"),
    *("spiece.model", "spm.model", "spm_char.model", "tokenizer.model", "sentencepiece.model"),
    *("sentencepiece.bpe.model", "prophetnet.tokenizer", "emoji.json", "chat_template.jinja", "chat_template.json"),
)
PART = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]"
WEIGHTS = (
    *("model.safetensors", f"model{PART}.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", f"pytorch_model{PART}.bin", "pytorch_model.bin.index.json"),
    *("adapter_model.safetensors", "adapter_model.bin"),
)
READ = (*CONFIGS, *TOKENIZERS, *WEIGHTS)


class Module(TypedDict):
    """A layer in modules.json."""

    path: str
    type: str


class Router(TypedDict):
    """router_config.json: the folder of each module -> its type."""

    types: dict[str, str]


def model_files(folder: Path) -> list[Path]:
    """The files of a model in a folder, and of its modules' folders, that the model libraries read, by name.

    Raises UserError for what leads out of the folder or is no regular file, and for a list of modules that is damaged.
    """
    names = {path.relative_to(folder) for place in module_folders(folder) for name in READ for path in place.glob(name)}
    return [inside(folder, name) for name in sorted(names)]


def module_folders(folder: Path) -> Iterator[Path]:
    """The folder of a model, and those of its modules. Raises UserError for a folder outside it."""
    remedy, modules = "download or save the model again", list[str]()
    if (folder / MODULES_FILE).is_file():
        modules += [one["path"] for one in read_json(folder / MODULES_FILE, list[Module], remedy)]
    for path in dict.fromkeys(("", *modules)):
        place = inside(folder, path) if path else folder
        yield place
        if (place / ROUTER_FILE).is_file():
            names = read_json(place / ROUTER_FILE, Router, remedy)["types"]
            yield from (inside(folder, f"{path}/{name}".lstrip("/")) for name in names)
