"""The model card of a checkpoint: README.md, with the front matter that huggingface.co reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rerank.config import Config
from rerank.data.types import Fold
from rerank.models.config_file import CheckpointConfig, SavedSettings, TokenizerConfig
from rerank.models.hub import encoder_folder
from rerank.runs.manifest import DISTRIBUTION, version
from rerank.runs.settings import to_toml
from rerank.utils.files import atomic_write
from rerank.utils.json_files import read_json
from rerank.utils.progress import log

CARD = "README.md"

_IN_SENTENCE_TRANSFORMERS = """
```python
from sentence_transformers import CrossEncoder

scores = CrossEncoder({name}).predict([(query, document) for document in documents])
```
"""

_CLASSIFIER = f"""The checkpoint is a `{{architecture}}` with one output. Other libraries, and servers that take this
architecture, compute the same scores:
{_IN_SENTENCE_TRANSFORMERS}
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained({{name}}).eval()
tokenizer = AutoTokenizer.from_pretrained({{name}})
pairs = tokenizer([query] * len(documents), documents, padding=True, truncation=True, return_tensors="pt")
scores = model(**pairs).logits[:, 0]
```
"""

_MODULES = f"""The checkpoint is a `{{architecture}}` with a linear layer in a file of its own, because the
classification head of this architecture cannot hold it. sentence-transformers (6 or newer) computes the same scores;
transformers alone and servers do not:
{_IN_SENTENCE_TRANSFORMERS}"""

_PASSAGES = """## Long documents

The input is a query and a passage, together at most {max_length} tokens. rerank cuts a query at half of that, splits a
longer document into passages, up to {max_doc_tokens} tokens of the document, and pools their scores ({pooling}). Other
libraries cut the input at {max_length} tokens: a document of one passage has the same score there, a longer one the
score of its beginning.
"""

_FIRST_STAGE = """## First stage

The model was trained to add the scores of the first stage ({first_stage}): the score of a document is the model's plus
{weight:g} times the first stage's, which has a mean of 0 and a standard deviation of 1 over the candidates of the
query. `rerank score`, `rerank search` and `Reranker` (`first_scores`) add it; other libraries give the model's part
alone.
"""

_HALF = """
Use float32 or bfloat16: in float16 the head of this architecture rounds scores by 0.1 and more.
"""


def write_training_card(checkpoint: Path, config: Config, collection: str, fold: Fold, facts: dict[str, Any]) -> None:
    """Writes the card of a fold's model, or of the final model; `facts` are those of its manifest."""
    _write(
        checkpoint,
        config,
        collection,
        describe_training(config, collection, fold, facts),
        describe_measures(fold, facts),
    )


def describe_training(config: Config, collection: str, fold: Fold, facts: dict[str, Any]) -> str:
    """A sentence on the queries that trained a model and those that chose its epoch."""
    lists = facts.get("training_lists")
    trained_on = f"{lists['trained_on']} training lists of a file for" if lists else f"{len(fold.train)} queries of"
    data = f"Trained on {trained_on} the collection `{collection}` with the loss `{config.loss.name}`; "
    if fold.valid:
        data += (
            f"epoch {facts['best_epoch']} of {facts['epochs']} was the best on {len(fold.valid)} validation queries."
        )
    else:
        data += f"{facts['epochs']} epochs, the median of the best epochs of the cross-validation folds."
    if facts.get("pretraining"):
        data += f" {_pretraining(facts['pretraining'])}"
    return data


def describe_measures(fold: Fold, facts: dict[str, Any]) -> str:
    """The measures of a fold's validation and test queries, as a table."""
    means = {part: result["means"] for part, result in facts["outcome"].items()}
    if not means:
        return "None: no judged query was kept from training. The folds of the same settings have test queries."
    queries = {"valid": f"{len(fold.valid)} validation", "test": f"{len(fold.test)} test"}
    columns = [{"valid": "validation", "test": "test"}[part] for part in means]
    rows = [
        [measure, *(f"{of_part[measure]:.4f}" for of_part in means.values())] for measure in next(iter(means.values()))
    ]
    return (
        f"Means over the {' and '.join(queries[part] for part in means)} queries of fold {fold.name}. The documents of "
        f"each query are those of the first stage.\n\n{_table([['measure', *columns], *rows])}"
    )


def write_pretraining_card(checkpoint: Path, config: Config, collection: str, facts: dict[str, Any]) -> None:
    """Writes the card of a pre-trained model; `facts` are those that its config records."""
    rows = [["", "MRR"], ["before", f"{facts['mrr_before']:.4f}"], ["after", f"{facts['mrr_held_out']:.4f}"]]
    measures = f"Mean reciprocal rank of the sources of held-out pseudo-queries.\n\n{_table(rows)}"
    _write(checkpoint, config, collection, _pretraining(facts), measures)


def _pretraining(facts: dict[str, Any]) -> str:
    steps = f"{facts['steps']} step{'s' * (facts['steps'] != 1)}"
    return (
        f"Pre-trained for {steps} on pseudo-queries made from the documents of `{facts['collection']}`, without "
        "queries or judgments."
    )


def _write(checkpoint: Path, config: Config, collection: str, data: str, measures: str) -> None:
    remedy = f"remove {checkpoint.parent} to train again"
    settings: CheckpointConfig = read_json(checkpoint / "config.json", CheckpointConfig, remedy)
    tokenizer: TokenizerConfig = read_json(checkpoint / "tokenizer_config.json", TokenizerConfig, remedy)
    architecture, saved = (settings["architectures"] or [""])[0], settings["rerank"]
    classifier = architecture.endswith("ForSequenceClassification")
    name = '"path/or/name"'
    passages = _PASSAGES.format(
        max_length=tokenizer["model_max_length"], max_doc_tokens=saved["max_doc_tokens"], pooling=saved["pooling"]
    )
    parts = [
        f"---\n{front_matter(config.encoder.name, 'text-ranking', ['cross-encoder', 'reranker', 'rerank'])}\n---",
        f"# Re-ranker for {collection}",
        "Scores a query and a document: the higher, the more relevant. The score is any real number, not a probability."
        f" {made_with()}",
        f"## Use\n\nWith rerank:\n\n```python\nimport rerank\n\nmodel = rerank.Reranker.load({name})\n"
        "model.rank(query, documents, top_k=10)\n```",
        (_CLASSIFIER if classifier else _MODULES).format(architecture=architecture, name=name)
        + (_HALF if saved.get("head", {}).get("form") == "small pair" else ""),
        passages,
        *([_first_stage(saved)] if "first_stage_weight" in saved else []),
    ]
    write_parts(checkpoint, [*parts, *closing(data, measures, config)])


def _first_stage(saved: SavedSettings) -> str:
    return _FIRST_STAGE.format(weight=saved["first_stage_weight"], first_stage=saved.get("first_stage", "BM25"))


def closing(data: str, measures: str, config: Config) -> list[str]:
    """The last parts of every card: the training data, the measures and the settings."""
    return [
        f"## Training data\n\n{data}",
        f"## Measures\n\n{measures}",
        f"## Settings\n\n```toml\n{to_toml(config).strip()}\n```",
    ]


def made_with() -> str:
    """The sentence that names this package and its version."""
    return f"Made with [rerank](https://github.com/ir-rerank/rerank) {version(DISTRIBUTION) or ''}".rstrip() + "."


def write_parts(checkpoint: Path, parts: Sequence[str]) -> None:
    """Writes the card of a checkpoint from its parts."""
    with atomic_write(checkpoint / CARD) as tmp:
        tmp.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "| --- |" + " ---: |" * (len(rows[0]) - 1), *lines[1:]])


def front_matter(encoder: str, task: str, tags: list[str]) -> str:
    """The YAML of the card: the licence and the base model are those of the encoder's own card, if it has one."""
    from huggingface_hub import ModelCardData

    base = _card_of(encoder)
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag=task,
        license=base.get("license", "unknown"),
        license_name=base.get("license_name"),
        license_link=base.get("license_link"),
        language=base.get("language"),
        base_model=base.get("base_model") if Path(encoder).is_dir() else encoder,
        tags=tags,
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
