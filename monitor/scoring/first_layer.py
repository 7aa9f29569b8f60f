"""A classifier cut after its first linear layer, so that many inputs near one can share it.

A person's counterfactuals differ from her in some features only, and most classifiers of tables
begin with a linear layer, if after a standardisation. Its output for a counterfactual is its output
for the person plus what the changed features add, which costs a fraction of the layer.
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
# Of the spread of logits, what rounding may make.
_TOLERANCE = 1e-3
# Of these dropout was exported in eval mode, else the classifier would not have been accepted.
_SAME = {"alias", "clone", "detach", "dropout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayer:
    """A classifier in two parts, which give its own answer when called one after the other.

    Attributes:
        head: From features `[n, d]` to the linear layer's output `[n, h]`.
        weight: What one unit of each feature adds to that output, `[d, h]`.
        tail: From there to the logit, `[n, h]` to `[n]`.
    """

    head: Callable[[Tensor], Tensor]
    weight: Tensor
    tail: Callable[[Tensor], Tensor]


def first_layer(classifier: Classifier) -> FirstLayer | None:
    """Cut an exported classifier; None where its input takes any other way than that."""
    module = classifier.module
    if not isinstance(module, fx.GraphModule) or any(map(_writes, module.graph.nodes)):
        return None
    found = _cut_at_first_layer(module, classifier)
    return found if found is not None and _answers(found, classifier) else None


def _cut_at_first_layer(module: fx.GraphModule, classifier: Classifier) -> FirstLayer | None:
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        return None
    node, scale = inputs[0], torch.ones(classifier.spec.width)
    passed = [node]
    while True:
        users = [user for user in node.users if not _looks_only(user)]
        if len(users) != 1:
            return None
        step = users[0]
        if _name(step) in ("linear", "addmm", "mm", "matmul"):
            weight = _weight(module, step, node)
            if weight is None or len(weight) != len(scale):
                return None
            head, tail = _cut(module, passed, step)
            return FirstLayer(
                head=head,
                weight=(scale[:, None] * weight).contiguous(),
                tail=partial(_logit_of, classifier, tail),
            )
        factor = _factor(module, step, node)
        if factor is None or factor.numel() not in (1, len(scale)):
            return None
        scale = scale * factor.reshape(-1)
        passed.append(step)
        node = step


def _writes(node: fx.Node) -> bool:
    """Whether an operator changes a tensor in place, which both parts would then do."""
    schema = getattr(node.target, "_schema", None)
    return bool(getattr(schema, "is_mutable", False))


def _answers(cut: FirstLayer, classifier: Classifier) -> bool:
    """Whether the parts give the classifier's answers, for people and for others near them."""
    people = torch.from_numpy(probe_features(classifier.spec, _PROBE_ROWS))
    others = people.roll(1, 0)
    with torch.no_grad():
        hidden = cut.head(people)
        near = cut.tail(hidden + (others - people) @ cut.weight)
        spread = classifier.logit(people).std().clamp_min(1e-6)
        return torch.equal(cut.tail(hidden), classifier.logit(people)) and bool(
            ((near - classifier.logit(others)).abs() <= _TOLERANCE * spread).all()
        )


def _logit_of(classifier: Classifier, tail: fx.GraphModule, hidden: Tensor) -> Tensor:
    return classifier.as_logit(tail(hidden))


def _looks_only(node: fx.Node) -> bool:
    """Whether a node asks for the shape, or checks it, and for nothing else."""
    return node.op == "call_module" or _name(node) == "sym_size"


def _name(node: fx.Node) -> str:
    """Name of the operator that a node calls, such as `linear`; empty for other nodes."""
    if node.op != "call_function":
        return ""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def _constant(module: fx.GraphModule, argument: object) -> Tensor | None:
    """What an operator is given, where it is the same for every input; None where it is not."""
    if isinstance(argument, int | float):
        return torch.tensor(float(argument))
    if not isinstance(argument, fx.Node):
        return None
    found: object = None
    if argument.op == "get_attr":
        found = module
        for part in str(argument.target).split("."):
            found = getattr(found, part)
    elif argument.op == "call_function" and not argument.kwargs:
        # Arithmetic on stored tensors, as in high − low, or a transposed weight.
        inputs = [_constant(module, a) if isinstance(a, fx.Node) else a for a in argument.args]
        if argument.all_input_nodes and not any(value is None for value in inputs):
            found = cast("Callable[..., object]", argument.target)(*inputs)
    if isinstance(found, Tensor) and found.dtype == torch.float32:
        return found.detach()
    return None


def _factor(module: fx.GraphModule, step: fx.Node, node: fx.Node) -> Tensor | None:
    """By what an elementwise step multiplies what comes from `node`; None if it is no such step."""
    name, args = _name(step), step.args
    if step.kwargs or node not in args:
        return None
    if name in _SAME:
        return torch.ones(())
    if len(args) != 2:
        return None
    first = args[0] is node
    other = _constant(module, args[1] if first else args[0])
    # Along the columns, or one number for all of them.
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
    """The matrix `[d, h]` that a linear step multiplies what comes from `node` with."""
    place = 1 if _name(step) == "addmm" else 0
    if step.args[place] is not node or step.args.count(node) != 1 or step.kwargs:
        return None
    found = _constant(module, step.args[place + 1])
    if found is None or found.dim() != 2:
        return None
    return found.T if _name(step) == "linear" else found


def _cut(
    module: fx.GraphModule, passed: list[fx.Node], layer: fx.Node
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The part up to the layer's output, and the part from there on."""
    head, tail = fx.Graph(), fx.Graph()
    features, hidden = head.placeholder("features"), tail.placeholder("hidden")
    before = _needed_for(layer)
    in_head: dict[fx.Node, fx.Node] = {passed[0]: features}
    in_tail: dict[fx.Node, fx.Node] = {layer: hidden}
    for node in module.graph.nodes:
        if node in before and node not in in_head:
            in_head[node] = head.node_copy(node, in_head.__getitem__)
        if node.op == "output":
            tail.output(in_tail[node.args[0][0]])
        elif _name(node) == "sym_size" and node.args[0] in (*passed, layer):
            # The batch is as large after the layer as before it.
            in_tail[node] = tail.call_function(torch.ops.aten.sym_size.int, (hidden, 0))
        elif node.op != "call_module" and node not in (*passed, layer):
            in_tail[node] = tail.node_copy(node, in_tail.__getitem__)
    head.output(in_head[layer])
    tail.eliminate_dead_code()
    return fx.GraphModule(module, head), fx.GraphModule(module, tail)


def _needed_for(node: fx.Node) -> set[fx.Node]:
    """A node and all that leads to it."""
    found, pending = {node}, [node]
    while pending:
        new = set(pending.pop().all_input_nodes) - found
        found |= new
        pending.extend(new)
    return found
