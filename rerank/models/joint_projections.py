"""A compiler pass: linear layers that read the same input, as those of queries, keys and values do, become one.

A GPU then reads the input once, and multiplies larger matrices.
"""

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx


@cache
def join_projections(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """A backend of torch.compile that joins the linear layers of a graph, and gives it to this one.

    It is the same function whenever it is asked for, as torch.compile shares the graphs of one backend.
    """

    def compile_joined(graph: fx.GraphModule, inputs: list[Any], **settings: Any) -> Any:
        _join_linear_layers(graph)
        if backend == "inductor":
            from torch._inductor.compile_fx import compile_fx

            return compile_fx(graph, inputs, config_patches=settings.get("options"))
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    return compile_joined


def _join_linear_layers(graph: fx.GraphModule) -> None:
    """Joins the linear layers with a bias whose weights are inputs of the graph."""
    by_input: dict[Any, list[fx.Node]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is F.linear and len(node.args) == 3:
            x, *parameters = node.args
            if all(isinstance(p, fx.Node) and p.op == "placeholder" for p in parameters):
                by_input.setdefault(x, []).append(node)
    for x, layers in by_input.items():
        if len(layers) > 1:
            _replace(graph.graph, x, layers)
    graph.recompile()


def _replace(graph: fx.Graph, x: Any, layers: list[fx.Node]) -> None:
    weights, biases = ([layer.args[place] for layer in layers] for place in (1, 2))
    sizes = [weight.meta["example_value"].shape[0] for weight in weights]  # type: ignore[union-attr]
    with graph.inserting_before(layers[0]):
        joint = [graph.call_function(torch.cat, (parts,)) for parts in (weights, biases)]
        output = graph.call_function(F.linear, (x, *joint))
        parts = graph.call_function(torch.split, (output, sizes, -1))
        for number, layer in enumerate(layers):
            layer.replace_all_uses_with(graph.call_function(operator.getitem, (parts, number)))
    for layer in layers:
        graph.erase_node(layer)
