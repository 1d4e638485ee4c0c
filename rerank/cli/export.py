"""`rerank export`: writes a checkpoint as a graph for a CPU."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.cli.arguments import QUERIES, READING, NamedCollection
from rerank.config import EncoderSettings, FirstStageSettings, OutputSettings
from rerank.config.flags import Flags, only
from rerank.config.settings import often
from rerank.utils.files import check_new_folder
from rerank.utils.parameters import FilePath, PathText, Whole, at_least
from rerank.utils.progress import print_result


@dataclass(frozen=True)
class Measured(FirstStageSettings):
    """The first stage for the measurement of int8: few candidates, as they are scored twice."""

    depth: Annotated[Whole, at_least(1), often("--depth")] = 20
    """Documents of a query that int8 is measured on."""


@dataclass(frozen=True)
class ExportFlags(Flags):
    """The settings of a graph, and of the measurement of int8."""

    collection: Annotated[NamedCollection, only("collection", *QUERIES)] = NamedCollection()
    first_stage: Annotated[Measured, only("first_stage", "index", "depth", "k1", "b", "threads")] = Measured()
    encoder: Annotated[EncoderSettings, only("encoder", *READING)] = EncoderSettings()
    output: Annotated[OutputSettings, only("output", "folder")] = OutputSettings()


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
        Integer products, which are faster and less exact; the loss is measured on queries of the collection.
    """
    check_new_folder(folder, "folder")
    from rerank.experiments.export import export_checkpoint

    print_result(export_checkpoint(flags.config(), checkpoint, folder, format, int8))
