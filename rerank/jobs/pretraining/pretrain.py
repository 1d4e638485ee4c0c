"""Pre-trains an encoder on pseudo-queries made from a collection's documents."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rerank.batches.batch import Batch, Packed, make_batch
from rerank.batches.passages import PassageBuilder
from rerank.config import Config, sections, validate
from rerank.data.collections import Collection, open_collection
from rerank.data.lists import read_training_lists
from rerank.data.types import Candidates, Run
from rerank.jobs.model_card import write_training_card
from rerank.jobs.pretraining.pseudo_lists import make_pseudo_lists, write_lists
from rerank.losses import softmax
from rerank.models.checkpoints import save_cross_encoder
from rerank.models.hub import file_hashes
from rerank.models.scoring import score_candidates
from rerank.runs.layout import PretrainingFolder
from rerank.runs.manifest import write_manifest
from rerank.tasks.collection import expect_text, folder_of, recorded
from rerank.tasks.first_stage import find_index, with_texts
from rerank.tasks.text import check_encoder, open_passages, open_to_train
from rerank.training.device import exclusive, open_accelerator, precision_facts
from rerank.training.loop import best_epoch, train
from rerank.training.objective import validation_value
from rerank.training.task import Part
from rerank.training.tracking import check_tracker, tracked
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import files_below, record_of
from rerank.utils.progress import log

STEPS = 400  # of `rerank pretrain` if the settings give none
PATIENCE = 3  # validations without a better MRR before pre-training stops


def pretrain_into(config: Config, out: Path) -> Path:
    """Pre-trains, by default for STEPS, and copies the checkpoint to the new folder `out`."""
    settings = replace(config.pretraining, steps=config.pretraining.steps or STEPS)
    accelerator = open_accelerator(config.training)
    checkpoint = pretrain(replace(config, pretraining=settings), accelerator)
    if accelerator.is_main_process:
        with atomic_write(out) as tmp:
            shutil.copytree(checkpoint, tmp)
    return out


def pretrain(config: Config, accelerator: Accelerator) -> Path:
    """The checkpoint of the encoder, pre-trained on the collection's documents; queries and judgments are not read.

    It is made once for all that the result depends on, in runs/<collection>/pretrained-<hash>/, where an interrupted
    pre-training is resumed. Raises UserError if the documents are too few or too short.
    """
    validate(config)
    check_tracker(config.training.track)
    check_encoder(config)
    expect_text(config.collection.source)
    with accelerator.main_process_first():
        collection = open_collection(config.collection.source)
        of_collection = folder_of(config, collection)
        index = find_index(config, collection, of_collection)
        collection = with_texts(config, collection, of_collection)
    folder = of_collection.pretraining(_identity(config, collection))
    with exclusive(accelerator, folder.path, "pre-training"):  # folds may be trained in parallel
        if folder.manifest.is_file():
            log.info(f"pre-training: {folder.path} already exists")
        else:
            with accelerator.main_process_first():
                if not folder.lists.is_file():  # it is written last
                    lists, held_out = make_pseudo_lists(config, collection, index)
                    write_lists(folder.held_out, held_out, once=True)
                    write_lists(folder.lists, lists)
            task = PretrainingTask(config, collection, folder, accelerator)
            _train(config, task, folder, accelerator)
    return folder.checkpoint


def _identity(config: Config, collection: Collection) -> str:
    """A hash of everything that the result depends on: documents, encoder, settings."""
    first, training = config.first_stage, config.training
    return short_hash(
        collection.fingerprint,
        *file_hashes(config.encoder.name),
        config.pretraining,
        replace(config.encoder, name="", first_stage_weight=0.0),
        (first.index, first.k1, first.b, config.collection.language),
        (training.seed, training.clip, training.precision, training.tf32, training.deterministic),
    )


class PretrainingTask:
    """Pseudo-queries and a cross-encoder. The held-out lists validate."""

    def __init__(
        self, config: Config, collection: Collection, folder: PretrainingFolder, accelerator: Accelerator
    ) -> None:
        self.config, self.collection, self.folder, self.accelerator = config, collection, folder, accelerator
        self.model, self.memory = open_to_train(config, config.encoder.name, accelerator)
        self.lists_per_epoch = config.pretraining.validate_every * config.pretraining.lists_per_step
        with accelerator.main_process_first():
            self.lists, self.passages = self._open(folder.lists)
            self.held_out, self.held_out_passages = self._open(folder.held_out)
        self.epoch, self.mrr_before, self.mrr = 0, 0.0, 0.0

    def _open(self, file: Path) -> tuple[list[Candidates], PassageBuilder]:
        found = read_training_lists(file, {}, "scores")
        _, doc_ids = found.doc_ids()

        def texts(left: Sequence[str]) -> Iterator[str]:
            return islice(found.texts(), len(doc_ids) - len(left), None)

        tokens = self.folder.tokens
        return found.lists, open_passages(self.model, found.queries, doc_ids, texts, tokens, found.sha256)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return self.model.parameter_groups(self.config.pretraining.lr, self.config.pretraining.head_lr)

    def batch(self, lists: Sequence[Candidates]) -> Batch[Packed]:
        return make_batch(lists, self.passages)

    def score(self, part: Part) -> Run:
        passages = self.held_out_passages
        return score_candidates(self.model, passages, self.held_out, self.accelerator, self.memory, "validating")

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        self.epoch = epoch + 1
        return self.lists[epoch * self.lists_per_epoch : (epoch + 1) * self.lists_per_epoch]

    def facts(self, epoch: int, mrr: float) -> dict[str, Any]:
        """What the checkpoint of an epoch, counted from 1, records of the pre-training."""
        config, lists = self.config, min(epoch * self.lists_per_epoch, len(self.lists))
        return {
            "hash": self.folder.identity,
            "collection": config.collection.source,
            "encoder": config.encoder.name,
            "steps": -(-lists // config.pretraining.lists_per_step),
            "pseudo_queries": lists,
            "mrr_held_out": round(mrr, 4),
            "mrr_before": round(self.mrr_before, 4),
        }

    def save(self, folder: Path) -> None:
        settings = recorded(self.config.collection) | {"pretraining": self.facts(self.epoch, self.mrr)}
        save_cross_encoder(self.model, folder, settings)


def _train(config: Config, task: PretrainingTask, folder: PretrainingFolder, accelerator: Accelerator) -> None:
    """Trains, writes the model card and the manifest, and removes temporary files."""
    qrels = {c.query_id: dict(zip(c.doc_ids, map(int, c.labels), strict=True)) for c in task.held_out}

    def validate(run: Run) -> float:
        """MRR of the held-out lists."""
        task.mrr = validation_value(run, qrels, "RR", softmax)
        return task.mrr

    task.mrr_before = validate(task.score("valid"))
    log.info(
        f"pre-training: {config.encoder.name} on {accelerator.device}, epochs of {config.pretraining.validate_every} "
        f"steps, validated by MRR of held-out lists; before the first {task.mrr_before:.4f}"
    )
    settings = replace(
        config.training,
        epochs=-(-len(task.lists) // task.lists_per_epoch),  # each list is used once
        lists_per_step=config.pretraining.lists_per_step,
        schedule="constant",  # this and the next three are of the training that follows
        warmup_ratio=0.0,
        weight_decay=0.0,
        average=0.0,
        patience=PATIENCE,
    )
    with tracked(accelerator, config, folder.path.parent.name, folder.path.name, folder.tracking):
        history = train(task, softmax, folder, settings, accelerator, validate)
    accelerator.free_memory()
    if accelerator.is_main_process:
        best = best_epoch(history)
        facts = task.facts(best["epoch"], best["valid"])
        write_training_card(folder.checkpoint, config, task.collection.name, None, {"pretraining": facts})
        files = record_of(folder.path, [*files_below(folder.checkpoint), folder.lists, folder.held_out, folder.log])
        computed = precision_facts(accelerator, task.model)
        manifest = {"config": sections(config), "pretraining": facts, "history": history, **computed, "files": files}
        write_manifest(folder.manifest, manifest)
        for temporary in (folder.state, folder.tokens):  # only an unfinished pre-training needs them
            shutil.rmtree(temporary)
    accelerator.wait_for_everyone()
