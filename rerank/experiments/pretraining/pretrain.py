"""Pre-trains an encoder on pseudo-queries made from a collection's documents."""

import json
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.batches.pair_template import pair_template
from rerank.batches.passages import PassageBuilder
from rerank.config import PRETRAINED, Config, LossSettings, sections
from rerank.data.collections import Collection
from rerank.data.tokens import open_store, tokenise
from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.first_stage import documents_and_index
from rerank.experiments.pretraining.lists import PseudoLists, read_lists, texts_of, write_lists
from rerank.experiments.pretraining.make_lists import make_pseudo_lists
from rerank.experiments.text import open_model
from rerank.models.cross_encoder import save_cross_encoder
from rerank.models.hub import encoder_folder
from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from rerank.runs.manifest import write_manifest
from rerank.training.device import exclusive, open_accelerator
from rerank.training.gradients import Loss
from rerank.training.loop import train
from rerank.training.losses import open_loss
from rerank.training.validation import mean_loss
from rerank.types import Run
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.progress import log

STEPS = 400


def pretrain_into(config: Config, out: Path) -> Path:
    """Pre-trains and copies the checkpoint to `out`; raises UserError where something is there already.

    Without a number of steps in the settings it takes STEPS.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError(f"--out {out}: is there already; expected a new folder to write")
    if not config.pretraining.steps:
        log.info(f"{STEPS} steps at most; --pretraining.steps gives another number")
        config = replace(config, pretraining=replace(config.pretraining, steps=STEPS))
    accelerator = open_accelerator(config.training.precision)
    checkpoint = pretrain(config, accelerator)
    if accelerator.is_main_process:
        with atomic_write(out) as tmp:
            shutil.copytree(checkpoint, tmp)
    return out


def pretrain(config: Config, accelerator: Accelerator) -> Path:
    """The checkpoint of the encoder, pre-trained on the collection's documents.

    It is made once for everything that decides it, in runs/<collection>/pretrained-<hash>/, where an interrupted
    pre-training goes on. Queries, judgments and folds are not opened. Raises UserError where the
    documents are too few or too short.
    """
    loss = open_loss(LossSettings(config.pretraining.loss), "--pretraining.loss")
    with accelerator.main_process_first():
        collection, index = documents_and_index(config)
    folder = Path(config.output.folder) / collection.name / f"{PRETRAINED}{_identity(config, collection)}"
    with exclusive(accelerator, folder, "pre-training"):  # folds may be trained side by side
        if not (folder / "manifest.json").is_file():
            _make(config, accelerator, collection, index, loss, folder)
        elif accelerator.is_main_process:
            log.info(f"pre-training: {folder} is there already")
    return folder / "checkpoint"


def _make(
    config: Config, accelerator: Accelerator, collection: Collection, index: Path, loss: Loss, folder: Path
) -> None:
    with accelerator.main_process_first():
        if not (folder / "lists.jsonl").is_file():
            write_lists(folder / "lists.jsonl", make_pseudo_lists(config, collection, index))
    lists = read_lists(folder / "lists.jsonl")
    history, before = _train(config, accelerator, collection, lists, loss, folder)
    if accelerator.is_main_process:
        _finish(config, folder, history, before, lists)
    accelerator.wait_for_everyone()


def _identity(config: Config, collection: Collection) -> str:
    """A hash of everything that decides the result: documents, encoder, settings."""
    encoder = encoder_folder(config.encoder.name)
    kinds = ("*.json", "*.txt", "*.model", "*.safetensors", "*.bin")
    files = sorted(file for kind in kinds for file in encoder.glob(kind))
    first, training = config.first_stage, config.training
    return short_hash(
        collection.fingerprint,
        *(f"{file.name} {file_hash(file)}" for file in files),
        sorted(asdict(config.pretraining).items()),
        (config.encoder.max_doc_tokens, config.encoder.pooling),
        (first.index, first.k1, first.b),
        (training.seed, training.clip, training.precision),
    )


def _train(
    config: Config, accelerator: Accelerator, collection: Collection, lists: PseudoLists, loss: Loss, folder: Path
) -> tuple[list[dict[str, float]], tuple[float, float]]:
    """What was measured after every so many steps, and MRR and loss before the first."""
    table = config.pretraining
    model, tokenizer, max_length = open_model(config, config.encoder.name, accelerator)
    with accelerator.main_process_first():
        inputs_of = _inputs(config, collection, lists, tokenizer, max_length, folder)
    budget = open_budget(config.training.max_tokens_per_forward, accelerator.device)

    def measure() -> tuple[float, float]:
        return _measure(
            score_candidates(model, inputs_of, lists.held_out, accelerator, budget, "validating"), lists, loss
        )

    def validate() -> float:
        mrr, value = measure()
        if accelerator.is_main_process:
            log.info(f"held out: MRR {mrr:.4f}, loss {value:.4f}")
        return mrr

    def keep_best() -> None:
        with atomic_write(folder / "checkpoint") as tmp:
            save_cross_encoder(model, tokenizer, tmp, config.encoder.max_doc_tokens)

    before = measure()
    if accelerator.is_main_process:
        log.info(
            f"pre-training: {config.encoder.name} on {accelerator.device}, epochs of {table.validate_every} steps; "
            f"held out, before the first: MRR {before[0]:.4f}, loss {before[1]:.4f}"
        )
    each = table.validate_every * table.lists_per_step
    history = train(
        model,
        model.parameter_groups(table.lr, table.head_lr),
        lambda epoch: lists.train[epoch * each : (epoch + 1) * each],
        partial(make_batch, inputs_of=inputs_of),
        loss,
        validate,
        keep_best,
        accelerator,
        budget,
        folder,
        epochs=-(-len(lists.train) // each),
        lists_per_step=table.lists_per_step,
        clip=config.training.clip,
        patience=table.patience,
        seed=config.training.seed,
    )
    accelerator.free_memory()
    return history, before


def _inputs(
    config: Config, collection: Collection, lists: PseudoLists, tokenizer: Any, max_length: int, folder: Path
) -> PassageBuilder:
    store = open_store(
        folder / "tokens",
        lists.variants(),
        lambda variants: texts_of(variants, collection.get),
        tokenizer,
        config.encoder.max_doc_tokens,
        collection.fingerprint,
    )
    queries = dict(zip(lists.queries, tokenise(list(lists.queries.values()), tokenizer), strict=True))
    return PassageBuilder(queries, store, pair_template(tokenizer), max_length)


def _measure(run: Run, lists: PseudoLists, loss: Loss) -> tuple[float, float]:
    """MRR and mean loss of the held-out lists."""
    labels = {c.query_id: dict(zip(c.doc_ids, c.labels, strict=True)) for c in lists.held_out}
    (ranks,) = evaluate(labels, run, ["recip_rank"]).values()
    return sum(ranks.values()) / len(ranks), mean_loss(run, lists.held_out, loss)


def _finish(
    config: Config,
    folder: Path,
    history: list[dict[str, float]],
    before: tuple[float, float],
    lists: PseudoLists,
) -> None:
    """Records the pre-training in the checkpoint's config, writes the manifest, and removes temporary files."""
    best = max(history, key=lambda record: record["valid"])
    each = config.pretraining.validate_every * config.pretraining.lists_per_step
    trained_on = min(len(lists.train), int(best["epoch"]) * each)
    kinds = [lists.kinds[c.query_id] for c in lists.train[:trained_on]]
    facts = {
        "hash": folder.name.removeprefix(PRETRAINED),
        "collection": config.collection.source,
        "encoder": config.encoder.name,
        "steps": -(-trained_on // config.pretraining.lists_per_step),
        "pseudo_queries": {kind: kinds.count(kind) for kind in dict.fromkeys(sorted(kinds))},
        "loss": config.pretraining.loss,
        "mrr_held_out": round(best["valid"], 4),
        "mrr_before": round(before[0], 4),
    }
    path = folder / "checkpoint" / "config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["rerank"]["pretraining"] = facts
    with atomic_write(path) as tmp:
        tmp.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    means = [{key: value for key, value in record.items() if key != "steps"} for record in history]  # the log has them
    write_manifest(folder / "manifest.json", {"config": sections(config), "pretraining": facts, "history": means})
    for needless in ("state", "tokens"):  # only an unfinished pre-training needs them
        shutil.rmtree(folder / needless)
