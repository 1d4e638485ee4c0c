"""Graphs in ONNX: written with torch's exporter and the package onnx, run by ONNX Runtime."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rerank.models.export.onnx_int8 import find_ranges, linear_inputs, to_int8
from rerank.models.export.rows import Graph, Rows, RowScores
from rerank.models.packages import needed
from rerank.utils.progress import progress

FILE = "model.onnx"
OPSET = 20
"""The first with GELU."""


def check_packages(int8: bool) -> None:
    """Raises UserError if a package is missing; int8 needs no other ones."""
    needed("onnx", "--format onnx")
    needed("onnxruntime", "--format onnx")


def write(module: RowScores, example: Rows, folder: Path, calibration: Sequence[Rows] | None) -> None:
    """Writes the graph into the folder, in int8 if there are inputs to calibrate with."""
    import onnx

    file = folder / FILE
    axes = {name: {0: "passages", 1: "tokens"} for name in example} | {"scores": {0: "passages"}}
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            module, tuple(map(torch.from_numpy, example.values())), file, input_names=list(example),
            output_names=["scores"], dynamic_axes=axes, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
    if calibration is None:
        return
    names = linear_inputs(onnx.load(file).graph)
    watched = onnx.load(file)
    watched.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in names)
    session = _session(watched.SerializeToString())
    ranges = find_ranges(session, names, progress(calibration, len(calibration), "calibrating"))
    onnx.save(to_int8(onnx.load(file), ranges), file)


def open_graph(folder: Path) -> Graph:
    """The graph of a folder, run by ONNX Runtime; raises UserError if onnxruntime is missing."""
    needed("onnxruntime", f"{folder}: a graph in ONNX")
    session = _session(str(folder / FILE))
    return lambda rows: session.run(None, rows)[0]


def _session(model: str | bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
