"""Graphs in ONNX: written with torch's exporter and the package onnx, run and quantised by ONNX Runtime.

In int8 each output of a layer has weights of 7 bits with their own scale, since with 8 bits processors without VNNI
overflow, and the inputs of a layer share a scale, which ONNX Runtime finds when it has them: so a call has one passage.
"""

import contextlib
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rerank.models.export.rows import Graph, Rows, RowScores
from rerank.utils.errors import needed
from rerank.utils.progress import quiet

FILE = "model.onnx"
OPSET = 20
"""The first with GELU."""


def check_packages(int8: bool) -> None:
    """Raises UserError if a package is missing; int8 needs no other ones."""
    needed("onnx", "--format onnx")
    needed("onnxruntime", "--format onnx")


def write(module: RowScores, example: Rows, folder: Path, int8: bool) -> None:
    """Writes the graph into the folder."""
    file = folder / FILE
    axes = {name: {0: "passages", 1: "tokens"} for name in example} | {"scores": {0: "passages"}}
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            module, tuple(map(torch.from_numpy, example.values())), file, input_names=list(example),
            output_names=["scores"], dynamic_axes=axes, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
    if int8:
        _quantise(file)


def _quantise(file: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)  # without any, its advice to run another tool first would add one that stays
    try:
        with quiet("root"):
            quantize_dynamic(file, file, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    finally:
        root.removeHandler(handler)


def open_graph(folder: Path, int8: bool) -> Graph:
    """The graph of a folder, run by ONNX Runtime; raises UserError if onnxruntime is missing."""
    needed("onnxruntime", f"{folder}: a graph in ONNX")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session: Any = onnxruntime.InferenceSession(str(folder / FILE), options, providers=["CPUExecutionProvider"])

    def scores(rows: Rows) -> np.ndarray:
        (found,) = session.run(None, rows)
        return np.asarray(found)

    def one_by_one(rows: Rows) -> np.ndarray:
        count = len(rows["input_ids"])
        return np.concatenate([scores({name: ids[at : at + 1] for name, ids in rows.items()}) for at in range(count)])

    return one_by_one if int8 else scores
