"""Writes the model cards of checkpoints, README.md, from the templates in the folder cards."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from rerank.config import Config
from rerank.data.types import Fold
from rerank.experiments.runs.manifest import DISTRIBUTION, version
from rerank.experiments.runs.settings import to_toml
from rerank.models.hub import encoder_folder
from rerank.utils.files import write_text
from rerank.utils.texts import counted

CARD = "README.md"


def write_training_card(
    checkpoint: Path,
    config: Config,
    collection: str,
    fold: Fold,
    facts: Mapping[str, object],
    means: Mapping[str, Mapping[str, float]],
) -> None:
    """Writes the model card of a fold: the `facts` of its manifest, and the `means` of each split by measure."""
    files = ("config.json", "tokenizer_config.json")
    model, tokenizer = (json.loads((checkpoint / file).read_text(encoding="utf-8")) for file in files)
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "cards"), trim_blocks=True)
    text = templates.get_template("cross_encoder.md").render(
        architecture=(model["architectures"] or [""])[0],
        saved=model["rerank"],
        max_length=tokenizer["model_max_length"],
        front_matter=_front_matter(config.encoder.name),
        settings=to_toml(config).strip(),
        config=config,
        collection=collection,
        counted=counted,
        fold=fold,
        facts=facts,
        measures=_measures(fold, means),
        version=version(DISTRIBUTION) or "",
    )
    write_text(checkpoint / CARD, text.rstrip() + "\n")


def _measures(fold: Fold, means: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """The rows of the table of measures, header first."""
    names = {"valid": f"{len(fold.valid)} validation queries", "test": f"{len(fold.test)} test queries"}
    rows = [[name, *(f"{means[split][name]:.4f}" for split in means)] for name in next(iter(means.values()))]
    return [["measure", *(names[split] for split in means)], *rows]


def _front_matter(encoder: str) -> str:
    """The metadata for huggingface.co; licence and base model come from the encoder's own card, if it has one."""
    from huggingface_hub import ModelCard, ModelCardData

    card, base = encoder_folder(encoder) / CARD, dict[str, str]()
    with contextlib.suppress(Exception):  # OSError, PyYAML's types, ValueError if the front matter is no mapping
        base = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="text-ranking",
        license=base.get("license", "unknown"),
        license_name=base.get("license_name"),
        license_link=base.get("license_link"),
        language=base.get("language"),
        base_model=base.get("base_model") if Path(encoder).is_dir() else encoder,
        tags=["cross-encoder", "reranker", "rerank"],
    )
    return str(data.to_yaml())
