"""The model cards of checkpoints and exported graphs: README.md, from the templates of the folder cards.

The front matter of a checkpoint's card is what huggingface.co reads.
"""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from rerank.config import Config
from rerank.data.types import Fold
from rerank.evaluation.agreement import TOP, Agreement
from rerank.models.config_file import CheckpointConfig, TokenizerConfig
from rerank.models.export.folder import ExportFacts
from rerank.models.hub import EXPORT_FILE, encoder_folder
from rerank.runs.manifest import DISTRIBUTION, version
from rerank.runs.settings import to_toml
from rerank.utils.files import atomic_write
from rerank.utils.json_files import read_json
from rerank.utils.progress import log

CARD = "README.md"


def write_training_card(
    checkpoint: Path, config: Config, collection: str, fold: Fold | None, facts: dict[str, Any]
) -> None:
    """Writes the card of a fold's model, of the final model, or, without a fold, of a pre-trained encoder.

    `facts` are those of the manifest.
    """
    remedy = f"remove {checkpoint.parent} to train again"
    model: CheckpointConfig = read_json(checkpoint / "config.json", CheckpointConfig, remedy)
    tokenizer: TokenizerConfig = read_json(checkpoint / "tokenizer_config.json", TokenizerConfig, remedy)
    _write(
        checkpoint,
        "cross_encoder.md",
        architecture=(model["architectures"] or [""])[0],
        saved=model["rerank"],
        max_length=tokenizer["model_max_length"],
        front_matter=_front_matter(config.encoder.name),
        settings=to_toml(config).strip(),
        config=config,
        collection=collection,
        fold=fold,
        facts=facts,
        measures=_measures(fold, facts),
    )


def write_export_card(folder: Path, checkpoint: str, agreement: Agreement | None, run: Path | None) -> None:
    """Writes the card of an exported graph; without an agreement if none was measured."""
    facts: ExportFacts = read_json(folder / EXPORT_FILE, ExportFacts, "export the checkpoint again")
    _write(folder, "export.md", checkpoint=checkpoint, facts=facts, agreement=agreement, run=run, top=TOP)


def _write(folder: Path, template: str, **values: Any) -> None:
    made_with = f"Made with [rerank](https://github.com/ir-rerank/rerank) {version(DISTRIBUTION) or ''}".rstrip() + "."
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "cards"), trim_blocks=True)
    text = templates.get_template(template).render(**values, made_with=made_with)
    with atomic_write(folder / CARD) as tmp:
        tmp.write_text(text.rstrip() + "\n", encoding="utf-8")


def _measures(fold: Fold | None, facts: dict[str, Any]) -> list[list[str]]:
    """The rows of the table of measures, its header first; of a pre-training, MRR before and after."""
    if fold is None:
        before, after = (f"{facts['pretraining'][key]:.4f}" for key in ("mrr_before", "mrr_held_out"))
        return [["", "MRR"], ["before", before], ["after", after]]
    means = {part: result["means"] for part, result in facts["outcome"].items()}
    if not means:
        return []
    names = {"valid": f"{len(fold.valid)} validation queries", "test": f"{len(fold.test)} test queries"}
    rows = [[name, *(f"{means[part][name]:.4f}" for part in means)] for name in next(iter(means.values()))]
    return [["measure", *(names[part] for part in means)], *rows]


def _front_matter(encoder: str) -> str:
    """The YAML of the card: the licence and the base model are those of the encoder's own card, if it has one."""
    from huggingface_hub import ModelCardData

    base = _card_of(encoder)
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
    yaml: str = data.to_yaml()
    return yaml


def _card_of(encoder: str) -> dict[str, Any]:
    from huggingface_hub import ModelCard

    card = encoder_folder(encoder) / CARD
    if not card.is_file():
        return {}
    try:
        facts: dict[str, Any] = ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()
    except Exception as error:  # PyYAML's types, ValueError for front matter that is no mapping
        log.info(
            f"{card}: not read ({str(error).splitlines()[0]}); the new model's card says that its licence is unknown"
        )
        return {}
    return facts
