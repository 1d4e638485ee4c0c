"""Graphs in OpenVINO's format: traced and run by OpenVINO, quantised by NNCF.

In int8 each output of a layer has weights of 8 bits with their own scale, and each token has scales for its inputs, one
for GROUP numbers, which OpenVINO finds when it has them. They lose less than scales that are the same for all tokens.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rerank.models.export.rows import Graph, Rows, RowScores
from rerank.utils.errors import needed
from rerank.utils.progress import quiet

FILE = "model.xml"
GROUP = 128
"""Inputs of a layer that are rounded with the same scale; 32 are slower, 384 less exact."""


def check_packages(int8: bool) -> None:
    """Raises UserError if a package is missing; NNCF is needed for int8 alone."""
    with _unobserved():
        needed("openvino", "--format openvino")
        if int8:
            needed("nncf", "--format openvino --int8")


def write(module: RowScores, example: Rows, folder: Path, int8: bool) -> None:
    """Writes the graph into the folder."""
    with _unobserved():
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
                model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        openvino.save_model(model, folder / FILE, compress_to_fp16=False)


def open_graph(folder: Path, int8: bool) -> Graph:
    """The graph of a folder, run by OpenVINO on the CPU; raises UserError if openvino is missing."""
    needed("openvino", f"{folder}: a graph in OpenVINO's format")
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",  # not bf16, which it would take where the processor has it
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(GROUP),
    }
    model = _core().compile_model(folder / FILE, "CPU", settings)
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


@contextlib.contextmanager
def _unobserved() -> Iterator[None]:
    """Within the block, OpenVINO and NNCF report no use of theirs over the network, as in continuous integration."""
    before = os.environ.get("CI")
    os.environ["CI"] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ["CI"]
        else:
            os.environ["CI"] = before
