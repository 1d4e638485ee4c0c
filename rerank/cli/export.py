"""`rerank export`: a checkpoint as a graph for a CPU."""

from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.cli.arguments import OF_CHECKPOINT
from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.config.files import check_file
from rerank.utils.files import check_new_folder
from rerank.utils.parameters import FilePath, OptionalPath, PathText
from rerank.utils.progress import print_result


@with_settings(
    "collection.source",
    "collection.queries",
    "collection.query_field",
    "encoder.max_doc_tokens",
    "encoder.pooling",
    "encoder.template",
    flags={"collection.source": OF_CHECKPOINT},
    defaults={"collection.source": ""},
)
def export(
    checkpoint: PathText,
    folder: FilePath,
    *,
    format: Literal["onnx", "openvino"],  # noqa: A002 - the name of the flag
    int8: Annotated[bool, Parameter(negative=())] = False,
    agreement: OptionalPath = None,
    config: Config,
) -> None:
    """Writes a checkpoint as a graph for a CPU.

    Parameters
    ----------
    checkpoint
        runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging Face cross-encoder.
    folder
        The new folder to write.
    format
        The library that runs the graph: ONNX Runtime or OpenVINO.
    int8
        Integer products, which are faster and less exact.
    agreement
        A TREC run: the agreement with the checkpoint is measured on 16 of its queries.
    """
    check_new_folder(folder, "folder")
    if agreement:
        check_file("--agreement", agreement)
    from rerank.jobs.export import export_checkpoint

    print_result(export_checkpoint(config, checkpoint, folder, format, int8, agreement))
