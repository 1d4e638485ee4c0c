"""Int8 for a graph in ONNX: the linear layers multiply integers, with scales that calibration found once.

The weights have 7 bits, a scale for each output and no zero point; the inputs have 8 bits and a scale for each layer.
With 7 bits the sums of two products fit into 16 bits, which processors with AVX2 and no VNNI add them in. A few
channels of an encoder's values are 10 times as large as the others: before a layer, each channel is divided by a factor
that its weights are multiplied with (SmoothQuant, Xiao et al. 2023).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from rerank.models.export.rows import Rows

LARGEST_WEIGHT = 63
MIGRATION = 0.85
"""How much of the differences between channels goes to the weights (SmoothQuant's α); all-MiniLM-L6-v2 loses least."""
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operations."""

Ranges = dict[str, tuple[np.ndarray, np.ndarray]]
"""The name of a value of the graph -> the smallest and the largest number of each channel, (channels,) each."""


def constants_of(graph: Any) -> dict[str, np.ndarray]:
    """The arrays of a graph by name, those that only have another name too."""
    from onnx import numpy_helper

    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def linear_inputs(graph: Any) -> list[str]:
    """The names of what the linear layers take."""
    constants = constants_of(graph)
    return sorted({node.input[0] for node in graph.node if _is_linear(node, constants)})


def find_ranges(session: Any, names: list[str], rows: Iterable[Rows]) -> Ranges:
    """The range of each value over the inputs, which has 0 in it; the session's graph returns the values."""
    ranges: Ranges = {}
    for inputs in rows:
        for name, values in zip(names, session.run(names, inputs), strict=True):
            values = values.reshape(-1, values.shape[-1])
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
    return ranges


def to_int8(model: Any, ranges: Ranges) -> Any:
    """The ModelProto with integer products in the place of those with constant weights."""
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = constants_of(graph)
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    nodes: list[Any] = []
    merged: set[str] = set()
    new: dict[str, np.ndarray] = {}
    factors: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.output and node.output[0] in merged:
            continue
        if not _is_linear(node, constants):
            nodes.append(node)
            continue
        value, weight = node.input
        if value not in factors:
            low, high = ranges[value]
            layers = [constants[user.input[1]] for user in users[value] if _is_linear(user, constants)]
            factors[value] = smoothing(np.maximum(-low, high), np.concatenate(layers, axis=1))
            scale, zero = scale_and_zero((low / factors[value]).min(), (high / factors[value]).max())
            new |= {f"{value}_scale": scale, f"{value}_zero": zero, f"{value}_factor": 1 / factors[value]}
            nodes.append(helper.make_node("Mul", [value, f"{value}_factor"], [f"{value}_smooth"]))
            names = [f"{value}_{part}" for part in ("smooth", "scale", "zero")]
            nodes.append(helper.make_node("QuantizeLinear", names, [f"{value}_int8"]))
        integers, scales = quantised(constants[weight] * factors[value][:, None])
        new |= {f"{weight}_int8": integers, f"{weight}_scale": scales, f"{weight}_zero": np.zeros_like(integers[0])}
        inputs = [f"{name}_{part}" for part in ("int8", "scale", "zero") for name in (value, weight)]
        output = node.output[0]
        if (bias := _bias(node, users, constants)) is not None:
            inputs.append(bias[0])
            output = bias[1]
            merged.add(output)
        nodes.append(helper.make_node("MatMulIntegerToFloat", inputs, [output], domain=MICROSOFT))
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *(numpy_helper.from_array(array, name) for name, array in new.items())])
    if all(opset.domain != MICROSOFT for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def smoothing(largest: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What each channel is divided by, (channels,): its values are then more alike, and its weights less.

    largest: (channels,) absolute values; weights: (channels, outputs) of all layers that take the channels. A channel
    without values or weights has the factor 1.
    """
    of_weights = np.abs(weights).max(axis=1)
    useful = (largest > 0) & (of_weights > 0)
    factors = np.where(useful, largest, 1) ** MIGRATION / np.where(useful, of_weights, 1) ** (1 - MIGRATION)
    return np.where(useful, factors, 1).astype(np.float32)


def scale_and_zero(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the zero point that map a range, which has 0 in it, to 0 … 255.

    >>> scale_and_zero(-1.0, 1.55)
    (array(0.01, dtype=float32), array(100, dtype=uint8))
    """
    scale = np.float32((high - low) / 255 or 1.0)
    return np.array(scale), np.array(round(-low / float(scale)), dtype=np.uint8)


def quantised(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight, (inputs, outputs), as int8, and the scale of each output, (outputs,)."""
    largest = np.abs(weight).max(axis=0)
    scales = np.where(largest > 0, largest / LARGEST_WEIGHT, 1).astype(np.float32)
    return np.round(weight / scales).clip(-LARGEST_WEIGHT, LARGEST_WEIGHT).astype(np.int8), scales


def _is_linear(node: Any, constants: dict[str, np.ndarray]) -> bool:
    return node.op_type == "MatMul" and node.input[1] in constants and constants[node.input[1]].ndim == 2


def _bias(node: Any, users: dict[str, list[Any]], constants: dict[str, np.ndarray]) -> tuple[str, str] | None:
    """The name of the constant that is added to a product, if that is all that uses the product, and of the sum."""
    following = users.get(node.output[0], [])
    if len(following) != 1 or following[0].op_type != "Add":
        return None
    others = [name for name in following[0].input if name != node.output[0]]
    if len(others) == 1 and others[0] in constants and constants[others[0]].ndim == 1:
        return others[0], following[0].output[0]
    return None
