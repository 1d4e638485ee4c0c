"""`rerank pretrain`: pre-training on pseudo-queries."""

from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.utils.files import check_new_folder
from rerank.utils.parameters import FilePath
from rerank.utils.progress import print_result


@with_settings(
    "collection.source",
    "collection.language",
    "first_stage.index",
    "first_stage.k1",
    "first_stage.b",
    "first_stage.threads",
    "encoder.name",
    "encoder.max_doc_tokens",
    "encoder.pooling",
    "encoder.template",
    "encoder.lora_rank",
    "training.clip",
    "training.device",
    "training.precision",
    "training.tf32",
    "training.deterministic",
    "training.max_tokens_per_forward",
    "training.gradient_checkpointing",
    "training.seed",
    "pretraining",
    "output.folder",
)
def pretrain(*, out: FilePath, config: Config) -> None:
    """Pre-trains an encoder on pseudo-queries made from the documents.

    Parameters
    ----------
    out
        The folder to write: a checkpoint for --encoder and for `rerank score`.
    """
    check_new_folder(out)
    from rerank.jobs.pretraining.pretrain import pretrain_into

    print_result(pretrain_into(config, out))
