"""`rerank score`: any run, re-ranked by a trained model."""

import sys
from typing import Annotated

from cyclopts import Parameter

from rerank.cli.checks import check_file, check_path, print_output
from rerank.cli.settings import OF_CHECKPOINT, with_settings
from rerank.config import Config, validate
from rerank.data.letor.layouts import is_feature_source
from rerank.utils.cluster.jobs import LOCAL, Engine
from rerank.utils.errors import UserError
from rerank.utils.files import check_output
from rerank.utils.parameters import OptionalPath, OutputPath, PathText, Pattern, TemplateText, Whole, at_least
from rerank.utils.progress import print_result

PART = Pattern(r"\d{1,9}/\d{1,9}", "the number of a part and how many there are, such as 3/16")


@with_settings(
    "collection.source",
    "collection.queries",
    "collection.query_field",
    "collection.language",
    "first_stage.encoder",
    "first_stage.feedback",
    "first_stage.index",
    "first_stage.depth",
    "first_stage.k1",
    "first_stage.b",
    "first_stage.threads",
    "encoder.max_doc_tokens",
    "encoder.pooling",
    "encoder.template",
    "training.device",
    "training.precision",
    "training.tf32",
    "training.max_tokens_per_forward",
    "output.folder",
    flags={"collection.source": OF_CHECKPOINT},
    defaults={"collection.source": ""},
)
def score(
    checkpoint: PathText,
    run: OptionalPath = None,
    *,
    out: OutputPath,
    then: Annotated[PathText, Parameter(name="--then", show_default=False)] = "",
    then_depth: Annotated[Whole | None, Parameter(name="--then.depth"), at_least(1)] = None,
    then_template: Annotated[TemplateText, Parameter(name="--then.template", show_default=False)] = "",
    parts: Annotated[Whole | None, at_least(1)] = None,
    part: Annotated[str, Parameter(validator=PART, metavar="I/N", show_default=False)] = "",
    on: Engine = LOCAL,
    config: Config,
) -> None:
    """Re-ranks a run, or BM25's, with a trained model or a cross-encoder of the hub.

    Parameters
    ----------
    checkpoint
        runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging Face cross-encoder.
    run
        The TREC run to re-rank; without it, BM25 retrieves first.
    out
        The TREC run to write, and its manifest; - for standard output, without a manifest.
    then
        A second, larger model, which scores the best documents of the first one; a table shows cost and gain.
    then_depth
        The documents of each query that the second model scores [default: 100].
    then_template
        The second model's prompt, as --encoder.template is that of the first one.
    parts
        Parts of about equal size that the queries are scored in; default: up to 100. An interrupted command goes on
        after the last part.
    part
        Score one part alone, such as 3/16, as a job of an array does; the job that ends last joins them.
    on
        Where the parts are scored: local, or on a Ray cluster: ray (of this machine, or RAY_ADDRESS),
        ray://HOST:10001.
    """
    number, parts = _which_part(part, parts, on)
    validate(config)
    check_path("checkpoint", checkpoint)
    check_output(out)
    check_path("--then", then)
    if not then and (then_depth is not None or then_template):
        raise UserError("--then.depth, --then.template: of no effect without --then, the second model")
    if then and (parts is not None or number is not None or on != LOCAL):
        raise UserError("--then: expected without --parts, --part and --on; for parts, run the two stages one by one")
    collection = config.collection.source
    if run and not (collection and is_feature_source(collection)):  # which is refused with a better reason
        check_file("run", run)
    if then:
        from rerank.jobs.cascade import THEN_DEPTH, Then, rescore_cascade

        second = Then(then, then_depth or THEN_DEPTH, then_template)
        cascaded = rescore_cascade(config, checkpoint, second, run, out, collection or None)
        if cascaded.table:  # of several processes, the main one has it
            print_result(cascaded.table)
            print_output(cascaded.run)
        return
    from rerank.jobs.rescore import rescore

    written = rescore(config, checkpoint, run, out, collection or None, parts, number, on)
    if written is None:
        sys.exit(1)
    print_output(written)


def _which_part(part: str, parts: int | None, on: str) -> tuple[int | None, int | None]:
    """The number of the only part to score, if any, and the number of parts. Raises UserError where flags disagree."""
    if not part:
        return None, parts
    number, count = map(int, part.split("/"))
    if not 1 <= number <= count:
        raise UserError(f"--part {part}: got part {number} of {count}; expected 1/{count} to {count}/{count}")
    if parts not in (None, count):
        raise UserError(
            f"--part {part}: says how many parts there are, and --parts {parts} otherwise; leave --parts out"
        )
    if on != LOCAL:
        raise UserError(f"--part {part}: is scored here; --on {on} scores all parts: leave one of them out")
    return number, count
