"""The formats of graphs: how each is written, quantised and run.

ONNX is written with torch's exporter and the package onnx, run and quantised by ONNX Runtime. In int8 each output of a
layer has weights of 7 bits with their own scale, since with 8 bits processors without VNNI overflow, and the inputs of
a layer share a scale, which ONNX Runtime finds when it has them: so a call has one passage.

OpenVINO traces and runs its graphs, NNCF quantises them. In int8 each output of a layer has weights of 8 bits with
their own scale, and each token has scales for its inputs, one for GROUP numbers, which OpenVINO finds when it has them.
They lose less than scales that are the same for all tokens. The last third of the layers, and attention, are in bf16
where OpenVINO finds that the processor has it, and otherwise in float32.
"""

import contextlib
import functools
import io
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from rerank.models.packing import layers_of
from rerank.utils.errors import needed
from rerank.utils.progress import quiet

Rows = dict[str, np.ndarray]
"""The inputs of a graph by name: (passages, tokens) int64 each."""

Graph = Callable[[Rows], np.ndarray]
"""(passages,) float32 scores of rows of one length."""

ONNX_FILE, OPENVINO_FILE = "model.onnx", "model.xml"
GROUP = 64
"""Inputs of a layer that OpenVINO rounds with the same scale. With 32 it is slower; with 128 rankings change more."""
UNOBSERVED = mock.patch.dict(os.environ, CI="true")
"""Within it, OpenVINO and NNCF report no use of theirs over the network, as in continuous integration."""


def check_packages(form: str, int8: bool) -> None:
    """Raises UserError if a package that writes a graph of this format, or runs it, is missing."""
    with UNOBSERVED:
        for package in ("onnx", "onnxruntime") if form == "onnx" else ("openvino",):
            needed(package, f"--format {form}")
        if int8 and form == "openvino":
            needed("nncf", "--format openvino --int8")


def _write_onnx(module: nn.Module, example: Rows, folder: Path, int8: bool) -> None:
    file = folder / ONNX_FILE
    axes = {name: {0: "passages", 1: "tokens"} for name in example} | {"scores": {0: "passages"}}
    with contextlib.redirect_stdout(io.StringIO()):  # opset 20 is the first with GELU
        torch.onnx.export(
            module, tuple(map(torch.from_numpy, example.values())), file, input_names=list(example),
            output_names=["scores"], dynamic_axes=axes, opset_version=20, dynamo=False,
        )  # fmt: skip
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # Its advice to run another tool first would add a handler that stays.
        with mock.patch.object(logging, "warning"):
            quantize_dynamic(file, file, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def _open_onnx(folder: Path, int8: bool) -> Graph:
    needed("onnxruntime", f"{folder}: a graph in ONNX")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    file, providers = str(folder / ONNX_FILE), ["CPUExecutionProvider"]
    session: Any = onnxruntime.InferenceSession(file, options, providers=providers)

    def scores(rows: Rows) -> np.ndarray:
        count = len(rows["input_ids"])
        size = 1 if int8 else count
        calls = ({name: ids[at : at + size] for name, ids in rows.items()} for at in range(0, count, size))
        return np.concatenate([session.run(None, call)[0] for call in calls])

    return scores


def _write_openvino(module: nn.Module, example: Rows, folder: Path, int8: bool) -> None:
    with UNOBSERVED:
        import openvino

        _core()
        inputs = {name: torch.from_numpy(values) for name, values in example.items()}
        model = openvino.convert_model(module, example_input=inputs)
        for port, name in zip(model.inputs, example, strict=True):
            port.get_tensor().set_names({name})
            port.get_node().set_partial_shape(openvino.PartialShape([-1, -1]))
        model.validate_nodes_and_infer_types()
        if int8:
            import nncf

            with quiet("nncf"), contextlib.redirect_stdout(sys.stderr):  # its progress bars
                mode, exact = nncf.CompressWeightsMode.INT8_ASYM, nncf.IgnoredScope(patterns=[_exact(module)])
                model = nncf.compress_weights(model, mode=mode, ignored_scope=exact)
        openvino.save_model(model, folder / OPENVINO_FILE, compress_to_fp16=False)


def _exact(module: Any) -> str:
    """A pattern of the operations that are not rounded, those outside the first two thirds of the layers."""
    layers = layers_of(module.model.encoder)
    first = layers[: -max(1, len(layers) // 3)] or layers
    names = [re.escape(name) for name, part in module.named_modules() if part in first]
    return rf"(?!.*\b({'|'.join(names)})\b).*"


def _open_openvino(folder: Path, int8: bool) -> Graph:
    needed("openvino", f"{folder}: a graph in OpenVINO's format")
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        # An int8 graph may compute its other operations in bf16; in float32 it would be as slow as our model in bf16.
        **({} if int8 else {"INFERENCE_PRECISION_HINT": "f32"}),
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(GROUP),
    }
    model = _core().compile_model(folder / OPENVINO_FILE, "CPU", settings)
    return lambda rows: model(rows)[0]


@functools.cache
def _core() -> Any:
    """The one Core of this process, with the CPU's plugin, which stays to the end of the process.

    The plugin gives the thread that loads it an alternate stack for signals, and unmaps it when the last Core is
    released, in whichever thread. Python runs its signal handlers on that stack: the next signal would end the process.
    """
    import openvino

    core = openvino.Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # loads the plugin
    return core


WRITERS = {"onnx": _write_onnx, "openvino": _write_openvino}
"""What writes a graph into a folder, from a module and example inputs, by the name that --format takes."""

OPENERS = {"onnx": _open_onnx, "openvino": _open_openvino}
"""What opens the graph in a folder; the bool of both is for int8."""
