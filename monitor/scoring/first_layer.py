"""A classifier split after its first linear layer, which a row's counterfactuals can share.

Counterfactuals differ from the row in some features only, and most classifiers of tabular data
begin with a linear layer, possibly after a standardisation. The layer's output for a counterfactual
is its output for the row plus the contribution of the changed features, which costs a fraction of
the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, fx

from monitor.bundle.classifier import Classifier, probe_features

__all__ = ["FirstLayer", "first_layer"]

_PROBE_ROWS = 32
# Tolerance for rounding, relative to the standard deviation of the logits.
_TOLERANCE = 1e-3
# Operators that return their input. Dropout is in eval mode: a bundle accepts no other.
_IDENTITY = {"alias", "clone", "detach", "dropout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayer:
    """A classifier as the composition of two functions.

    Attributes:
        head: Features `[n, d]` to the output of the linear layer, `[n, h]`.
        weight: Derivative of that output by the features, `[d, h]`.
        tail: Output of the linear layer `[n, h]` to the logit, `[n]`.
    """

    head: Callable[[Tensor], Tensor]
    weight: Tensor
    tail: Callable[[Tensor], Tensor]


def first_layer(classifier: Classifier) -> FirstLayer | None:
    """Split an exported classifier; None if it does not begin with a linear layer."""
    module = classifier.module
    if not isinstance(module, fx.GraphModule) or any(map(_writes, module.graph.nodes)):
        return None
    parts = _split_at_first_layer(module, classifier)
    return parts if parts is not None and _is_equivalent(parts, classifier) else None


def _split_at_first_layer(module: fx.GraphModule, classifier: Classifier) -> FirstLayer | None:
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        return None
    node, scale = inputs[0], torch.ones(classifier.spec.width)
    elementwise = [node]
    while True:
        users = [user for user in node.users if not _reads_shape(user)]
        if len(users) != 1:
            return None
        step = users[0]
        if _name(step) in ("linear", "addmm", "mm", "matmul"):
            weight = _weight(module, step, node)
            if weight is None or len(weight) != len(scale):
                return None
            head, tail = _cut(module, elementwise, step)
            return FirstLayer(
                head=head,
                weight=(scale[:, None] * weight).contiguous(),
                tail=partial(_logit_of, classifier, tail),
            )
        factor = _factor(module, step, node)
        if factor is None or factor.numel() not in (1, len(scale)):
            return None
        scale = scale * factor.reshape(-1)
        elementwise.append(step)
        node = step


def _writes(node: fx.Node) -> bool:
    """Whether an operator changes a tensor in place, which both parts would repeat."""
    schema = getattr(node.target, "_schema", None)
    return bool(getattr(schema, "is_mutable", False))


def _is_equivalent(parts: FirstLayer, classifier: Classifier) -> bool:
    """Whether the parts give the classifier's logits, for probe rows and for changed rows."""
    rows = torch.from_numpy(probe_features(classifier.spec, _PROBE_ROWS))
    others = rows.roll(1, 0)
    with torch.no_grad():
        hidden = parts.head(rows)
        near = parts.tail(hidden + (others - rows) @ parts.weight)
        spread = classifier.logit(rows).std().clamp_min(1e-6)
        return torch.equal(parts.tail(hidden), classifier.logit(rows)) and bool(
            ((near - classifier.logit(others)).abs() <= _TOLERANCE * spread).all()
        )


def _logit_of(classifier: Classifier, tail: fx.GraphModule, hidden: Tensor) -> Tensor:
    return classifier.as_logit(tail(hidden))


def _reads_shape(node: fx.Node) -> bool:
    """Whether a node only reads or checks the shape of its input."""
    return node.op == "call_module" or _name(node) == "sym_size"


def _name(node: fx.Node) -> str:
    """Name of the operator that a node calls, such as `linear`; empty for other nodes."""
    if node.op != "call_function":
        return ""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def _constant(module: fx.GraphModule, argument: object) -> Tensor | None:
    """Value of an operator's argument if it is the same for every input; None otherwise."""
    if isinstance(argument, int | float):
        return torch.tensor(float(argument))
    if not isinstance(argument, fx.Node):
        return None
    value: object = None
    if argument.op == "get_attr":
        value = module
        for part in str(argument.target).split("."):
            value = getattr(value, part)
    elif argument.op == "call_function" and not argument.kwargs:
        # Arithmetic on stored tensors, as in high − low, or a transposed weight.
        inputs = [_constant(module, a) if isinstance(a, fx.Node) else a for a in argument.args]
        if argument.all_input_nodes and not any(constant is None for constant in inputs):
            value = cast("Callable[..., object]", argument.target)(*inputs)
    if isinstance(value, Tensor) and value.dtype == torch.float32:
        return value.detach()
    return None


def _factor(module: fx.GraphModule, step: fx.Node, node: fx.Node) -> Tensor | None:
    """Factor of an elementwise step on the value of `node`; None if it is not affine."""
    name, args = _name(step), step.args
    if step.kwargs or node not in args:
        return None
    if name in _IDENTITY:
        return torch.ones(())
    if len(args) != 2:
        return None
    first = args[0] is node
    other = _constant(module, args[1] if first else args[0])
    # One factor per column, or one for all columns.
    if other is None or other.dim() > 2 or (other.dim() == 2 and len(other) != 1):
        return None
    match name, first:
        case ("add", _) | ("sub", True) | ("rsub", False):
            return torch.ones(())
        case ("sub", False) | ("rsub", True):
            return -torch.ones(())
        case ("mul", _):
            return other
        case ("div", True):
            return 1 / other
        case _:
            return None


def _weight(module: fx.GraphModule, step: fx.Node, node: fx.Node) -> Tensor | None:
    """Matrix `[d, h]` of a linear step whose input is `node`."""
    index = 1 if _name(step) == "addmm" else 0
    if step.args[index] is not node or step.args.count(node) != 1 or step.kwargs:
        return None
    matrix = _constant(module, step.args[index + 1])
    if matrix is None or matrix.dim() != 2:
        return None
    return matrix.T if _name(step) == "linear" else matrix


def _cut(
    module: fx.GraphModule, elementwise: list[fx.Node], layer: fx.Node
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Graph up to the layer's output, and graph from there to the output."""
    head, tail = fx.Graph(), fx.Graph()
    features, hidden = head.placeholder("features"), tail.placeholder("hidden")
    before = _needed_for(layer)
    in_head: dict[fx.Node, fx.Node] = {elementwise[0]: features}
    in_tail: dict[fx.Node, fx.Node] = {layer: hidden}
    for node in module.graph.nodes:
        if node in before and node not in in_head:
            in_head[node] = head.node_copy(node, in_head.__getitem__)
        if node.op == "output":
            tail.output(in_tail[node.args[0][0]])
        elif _name(node) == "sym_size" and node.args[0] in (*elementwise, layer):
            # The batch size is the same before and after the layer.
            in_tail[node] = tail.call_function(torch.ops.aten.sym_size.int, (hidden, 0))
        elif node.op != "call_module" and node not in (*elementwise, layer):
            in_tail[node] = tail.node_copy(node, in_tail.__getitem__)
    head.output(in_head[layer])
    tail.eliminate_dead_code()
    return fx.GraphModule(module, head), fx.GraphModule(module, tail)


def _needed_for(node: fx.Node) -> set[fx.Node]:
    """A node and all its ancestors."""
    ancestors, pending = {node}, [node]
    while pending:
        new = set(pending.pop().all_input_nodes) - ancestors
        ancestors |= new
        pending.extend(new)
    return ancestors
