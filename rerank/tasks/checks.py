"""What can be refused from the settings alone, before anything is downloaded, retrieved or trained."""

from rerank.batches.templates import check_text_template
from rerank.config import Config, validate
from rerank.data.letor.layouts import is_feature_source
from rerank.evaluation.measures import measure_name
from rerank.losses import LABELS
from rerank.models.pooling import POOLINGS
from rerank.training.objective import open_loss
from rerank.training.tracking import check_tracker
from rerank.utils.errors import UserError, nearest, needed


def check_training(config: Config, lists: str = "") -> None:
    """Raises UserError for settings of a training that no collection can make valid.

    Among them are a loss whose labels the settings do not give, and training lists that cannot be used. `lists` says
    where training lists will come from, if not from `--training.lists`.
    """
    validate(config)
    open_loss(config.loss)
    check_encoder(config)
    check_tracker(config.training.track)
    name, weight, source = config.loss.name, config.encoder.first_stage_weight, config.collection.source
    lists = lists or config.training.lists
    if config.training.measure != "loss":
        measure_name(config.training.measure)
    elif LABELS[name] == "scores":
        raise UserError(
            f"--training.measure loss: {name} needs a teacher's scores, which validation queries do not have; expected "
            "a measure such as nDCG@20"
        )
    if lists and is_feature_source(source):
        raise UserError(
            f"--training.lists {lists}: {source} holds feature vectors, which are trained on their own lists; leave it "
            "out"
        )
    if lists and weight:
        raise UserError(
            f"--encoder.first-stage-weight {weight:g}: training lists have no first-stage scores to add; leave it out"
        )
    if LABELS[name] == "scores" and not lists:
        raise UserError(
            f"--loss {name}: learns from a teacher's scores, not from judgments; give them with --training.lists, or "
            "use `rerank distill`"
        )


def check_encoder(config: Config) -> None:
    """Raises UserError for an unknown pooling, a template without its placeholders, and LoRA without peft."""
    if (pooling := config.encoder.pooling) not in POOLINGS:
        raise UserError(f"--encoder.pooling {pooling}: no such pooling; {nearest(pooling, POOLINGS)}")
    if config.encoder.template:
        check_text_template(config.encoder.template)
    if rank := config.encoder.lora_rank:
        needed("peft", f"--encoder.lora-rank {rank}", "lora")
