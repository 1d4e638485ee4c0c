"""`rerank export`: a checkpoint as a graph for a CPU."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.config import EncoderSettings
from rerank.config.flags import Flags, only
from rerank.utils.files import check_new_folder
from rerank.utils.parameters import FilePath, PathText
from rerank.utils.progress import print_result


@dataclass(frozen=True)
class ExportFlags(Flags):
    """The settings that act on a graph."""

    encoder: Annotated[EncoderSettings, only("encoder", "max_doc_tokens", "pooling", "template")] = EncoderSettings()


def export(
    checkpoint: PathText,
    folder: FilePath,
    *,
    format: Literal["onnx", "openvino"],  # noqa: A002 - the name of the flag
    int8: Annotated[bool, Parameter(negative=())] = False,
    flags: ExportFlags = ExportFlags(),
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
    """
    check_new_folder(folder, "folder")
    from rerank.jobs.graphs import export_checkpoint

    print_result(export_checkpoint(flags.config().encoder, checkpoint, folder, format, int8))
