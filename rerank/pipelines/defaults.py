"""The default stages of `rerank fit`."""

from rerank import stages as kinds
from rerank.pipelines.crossfit import FEWEST
from rerank.pipelines.stages.base import Stage
from rerank.pipelines.stages.late_interaction import ALL_BELOW
from rerank.utils.errors import UserError

NO_ENCODER = "none"
"""The name that stands for no bi-encoder."""


def default_stages(
    encoder: str, cross_encoder: str, documents: int, sparse_encoder: str = "", train_encoder: bool = False
) -> dict[str, Stage]:
    """The stages that `fit` tries for a collection of `documents`; with the encoder "none", only BM25 and neighbours.

    A sparse encoder is a third stage that retrieves, and is fused with the others. With `train_encoder`, the bi-encoder
    is fine-tuned on the judgments; its similarities are added to the scores of the last stage that learns cheaply.

    Late interaction is tried if `fit` encodes the tokens of all documents, so that a search does not have to.

    >>> list(default_stages("encoder", "", 20_001))
    ['bm25', 'dense', 'feedback', 'fused', 'neighbours', 'similar', 'adapter', 'both', 'combined']
    >>> list(default_stages(NO_ENCODER, "", 20_001))
    ['bm25', 'neighbours']
    >>> default_stages("encoder", "", 20_001, train_encoder=True)["trained"].of
    'combined'
    """
    stages: dict[str, Stage] = {"bm25": kinds.BM25Stage(k1=1.2, b=0.75)}
    if sparse_encoder:
        stages["sparse"] = kinds.SparseStage(sparse_encoder)
    if encoder != NO_ENCODER:
        stages["dense"] = kinds.DenseStage(encoder)
        stages["feedback"] = kinds.FeedbackStage(("bm25", "dense"), encoder)
    if len(stages) > 1:
        stages["fused"] = kinds.FusionStage(tuple(stages))
    if encoder != NO_ENCODER and documents <= ALL_BELOW:
        stages["late"] = kinds.LateInteractionStage("fused", encoder)
    stages["neighbours"] = kinds.NeighboursStage(list(stages)[-1])
    if encoder != NO_ENCODER:
        stages["similar"] = kinds.SimilarQueriesStage("neighbours", encoder)
        stages["adapter"] = kinds.QueryAdapterStage("neighbours", encoder)
        stages["both"] = kinds.FusionStage(("similar", "adapter"), weights=(0.5, 0.5))
        stages["combined"] = kinds.FeaturesStage(tuple(stages))
    cheap = list(stages)[-1]
    if cross_encoder:
        stages["cross-encoder"] = kinds.CrossEncoderStage(cheap, cross_encoder)
    if train_encoder:
        stages["trained"] = kinds.TrainedEncoderStage(cheap, encoder)
    if cross_encoder and train_encoder:  # each learns from the stage below both
        stages["reranked"] = kinds.FusionStage(("cross-encoder", "trained"), weights=(0.5, 0.5))
    return stages


def check_train_encoder(encoder: str, judged: int, source: str) -> None:
    """Raises UserError if there is no bi-encoder to fine-tune, or if too few queries are judged to learn from."""
    if encoder == NO_ENCODER:
        raise UserError(f"--train-encoder: there is no bi-encoder to fine-tune, as --encoder is {NO_ENCODER}; name one")
    if judged < FEWEST:
        raise UserError(
            f"--train-encoder: {source} has {judged} judged queries, expected {FEWEST} or more to learn from; judge "
            "more, or leave the flag out"
        )


def check_encoder(encoder: str) -> None:
    """Raises UserError if the bi-encoder of the default stages is not on this machine and cannot be downloaded."""
    if encoder != NO_ENCODER:
        from rerank.models.hub import encoder_folder  # loads torch

        try:
            encoder_folder(encoder)
        except UserError as error:
            raise UserError(
                f"{error}; --encoder FOLDER names a bi-encoder on this machine, --encoder {NO_ENCODER} takes only BM25 "
                "and neighbours"
            ) from error
