"""Checks of the settings of a text experiment, before anything is opened."""

from rerank.batches.templates import check_text_template
from rerank.config import Config, EncoderSettings, validate
from rerank.data.splitting import Cut
from rerank.evaluation.measures import measure_name
from rerank.losses import LABELS
from rerank.models.pooling import check_pooling
from rerank.training.objective import open_loss
from rerank.training.tracking import check_tracker
from rerank.utils.errors import UserError, needed


def check_training(config: Config, lists: str = "") -> None:
    """Raises UserError for invalid settings; `lists` names the source of lists if it is not `--training.lists`."""
    validate(config)
    open_loss(config.loss)
    check_encoder(config)
    check_tracker(config.training.track)
    name, weight, lists = config.loss.name, config.encoder.first_stage_weight, lists or config.training.lists
    if config.training.measure != "loss":
        measure_name(config.training.measure)
    elif LABELS[name] == "scores":
        raise UserError(
            f"--training.measure loss: {name} needs a teacher's scores, which validation queries do not have; expected "
            "a measure such as nDCG@20"
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


def cut_of(settings: EncoderSettings) -> Cut:
    """How the settings cut documents into passages; raises UserError for an overlap of whole passages."""
    return Cut(settings.passage_tokens, settings.passage_overlap)


def check_encoder(config: Config) -> None:
    """Raises UserError for an unknown pooling, a wrong overlap or template, and LoRA without peft."""
    cut_of(config.encoder)
    check_pooling(config.encoder.pooling)
    if config.encoder.template:
        check_text_template(config.encoder.template)
    if rank := config.encoder.lora_rank:
        needed("peft", f"--encoder.lora-rank {rank}", "lora")
