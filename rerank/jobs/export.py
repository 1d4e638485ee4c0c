"""Writes a trained model as a graph for a CPU, and measures how far its scores agree (`rerank export`)."""

from pathlib import Path

from rerank.config import Config
from rerank.data.trec import read_run
from rerank.evaluation.agreement import agreement_of
from rerank.jobs.int8 import DOCUMENTS, QUERIES, evenly_spaced
from rerank.jobs.model_card import write_export_card
from rerank.jobs.scoring import open_queried
from rerank.models.checkpoints import open_trained_weights
from rerank.models.export.folder import FORMATS, write_export
from rerank.models.reranker import Reranker
from rerank.utils.files import atomic_write
from rerank.utils.progress import log


def export_checkpoint(config: Config, checkpoint: str, folder: Path, form: str, int8: bool, run: Path | None) -> Path:
    """Writes the new folder of a graph, with a model card, and returns it.

    Args:
        config: the pooling, the length of documents and the template of a model that was saved without them; the
            collection of the run, by default the one that the checkpoint was trained on, and its queries.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        folder: the folder to write.
        form: a key of FORMATS.
        int8: whether products are those of integers.
        run: a TREC run, on which the agreement of the scores is measured.

    Raises UserError if the model has no trained head or cannot be exported, if a package or the run is missing, and if
    the run's queries or documents have no text.
    """
    FORMATS[form].check_packages(int8)
    encoder = config.encoder
    model, tokenizer, _, max_doc_tokens = open_trained_weights(
        checkpoint, encoder.pooling, encoder.max_doc_tokens, encoder.template
    )
    collection, sample = None, {}
    if run is not None:
        _, collection = open_queried(config.collection, checkpoint, model.settings)
        found = read_run(run)
        known = sorted(query_id for query_id in found if query_id in collection.queries)
        sample = {query_id: found[query_id] for query_id in evenly_spaced(known, QUERIES) or found}
    with atomic_write(folder) as tmp:
        write_export(tmp, checkpoint, model, tokenizer, max_doc_tokens, form, int8)
        agreement = None
        if collection is not None:
            exact = Reranker.load(
                checkpoint,
                device="cpu",
                precision="float32",
                pooling=encoder.pooling,
                max_doc_tokens=encoder.max_doc_tokens,
                template=encoder.template,
            )
            runs = [reranker.rerank(sample, collection, DOCUMENTS) for reranker in (exact, Reranker.load(tmp))]
            agreement = agreement_of(*runs)
            log.info(f"agreement with {checkpoint}: {agreement}")
        write_export_card(tmp, checkpoint, agreement, run)
    return folder
