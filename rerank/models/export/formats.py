"""The formats of exported graphs: how each is written, quantised and run.

ONNX: torch's exporter writes the graph, ONNX Runtime quantises and runs it. In int8, weights have 7 bits and a scale
per output of a layer; with 8 bits, processors without VNNI overflow. The inputs of a layer share one scale, computed at
run time, so a call has one passage.

OpenVINO: it traces and runs the graph, NNCF quantises it. In int8, weights have 8 bits and a scale per output of a
layer. Inputs have one scale per token and GROUP values, computed at run time, which loses less than one scale for all
tokens. The last third of the layers and attention stay in bf16 if the processor supports it, and otherwise in float32.
"""

import contextlib
import functools
import io
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from rerank.models.packing import layers_of
from rerank.utils.errors import needed
from rerank.utils.progress import quiet

if TYPE_CHECKING:
    from openvino import Core

Rows = dict[str, np.ndarray]
"""The inputs of a graph by name: (passages, tokens) int64 each."""

Graph = Callable[[Rows], np.ndarray]
"""(passages,) float32 scores of rows of one length."""

ONNX_FILE = "model.onnx"
OPENVINO_FILE = "model.xml"

GROUP = 64
"""Inputs of a layer that OpenVINO quantises with one scale. 32 is slower; with 128 rankings change more."""

UNOBSERVED = mock.patch.dict(os.environ, CI="true")
"""Within this context OpenVINO and NNCF send no telemetry, as in continuous integration."""


def check_packages(form: str, int8: bool) -> None:
    """Raises UserError if a package is missing that writes or runs a graph of this format."""
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
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.quant_utils import add_pre_process_metadata

        graph = onnx.load(file)
        add_pre_process_metadata(graph)  # otherwise it advises to run another tool
        root, handler = logging.getLogger(), logging.NullHandler()
        root.addHandler(handler)  # it calls logging.info, which would give a root logger without handlers one for good
        try:
            quantize_dynamic(graph, file, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
        finally:
            root.removeHandler(handler)


def _open_onnx(folder: Path, int8: bool) -> Graph:
    needed("onnxruntime", f"{folder}: a graph in ONNX")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    file, providers = str(folder / ONNX_FILE), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(file, options, providers=providers)

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
    """A pattern of the operations that are not quantised: all outside the first two thirds of the layers."""
    layers = layers_of(module.model.encoder)
    first = layers[: -max(1, len(layers) // 3)] or layers
    names = [re.escape(name) for name, part in module.named_modules() if part in first]
    return rf"(?!.*\b({'|'.join(names)})\b).*"


def _open_openvino(folder: Path, int8: bool) -> Graph:
    with UNOBSERVED:  # the import sends the first event
        needed("openvino", f"{folder}: a graph in OpenVINO's format")
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        # Unquantised operations of an int8 graph may run in bf16; in float32 the graph is as slow as our model in bf16.
        **({} if int8 else {"INFERENCE_PRECISION_HINT": "f32"}),
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(GROUP),
    }
    model = _core().compile_model(folder / OPENVINO_FILE, "CPU", settings)
    one_thread = threading.Lock()

    def scores(rows: Rows) -> np.ndarray:
        with one_thread:  # a model that is called has one set of buffers
            found: np.ndarray = model(rows)[0]
        return found

    return scores


@functools.cache
def _core() -> "Core":
    """The Core of this process, with the CPU's plugin; it is never released.

    The plugin gives the thread that loads it an alternate signal stack, and unmaps this stack when the last Core is
    released. Python runs its signal handlers on that stack, so the next signal would end the process.
    """
    import openvino

    core = openvino.Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # loads the plugin
    return core


WRITERS = {"onnx": _write_onnx, "openvino": _write_openvino}
"""--format -> the function (module, example inputs, folder, int8) that writes a graph."""

OPENERS = {"onnx": _open_onnx, "openvino": _open_openvino}
"""--format -> the function (folder, int8) that opens a graph."""
