"""What goes through the pipeline, whichever door it came by: a call, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "Call", "InputTensor", "OutputTensor"]


class InputTensor(NamedTuple):
    """A tensor as a client sent it.

    Attributes:
        name: As the client calls it.
        datatype: One of the protocol's.
        shape: As the client states it.
        data: Raw bytes as the protocol lays them out, or its elements one after the other.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    data: bytes | Sequence[object]


class OutputTensor(NamedTuple):
    """A tensor that goes back.

    Attributes:
        name: Of the output.
        datatype: One of FP32, FP64 and BYTES.
        values: Its elements in its shape; text for BYTES.
    """

    name: str
    datatype: str
    values: NDArray[np.float32] | NDArray[np.float64] | NDArray[np.object_]


class Call(NamedTuple):
    """A request for predictions.

    Attributes:
        model: Name of the model.
        version: Its version; empty lets the sidecar choose.
        id: The client's own name for the request; may be empty.
        inputs: The tensors.
        outputs: Names of the outputs that are wanted; none for the classifier's own.
    """

    model: str
    version: str
    id: str
    inputs: Sequence[InputTensor]
    outputs: Sequence[str] = ()


class Answer(NamedTuple):
    """What a call gets.

    Attributes:
        id: The client's id, or the generated one where it gave none.
        outputs: In the order in which they were wanted.
        marks: What monitoring says of the predictions, by the name of a parameter.
    """

    id: str
    outputs: Sequence[OutputTensor]
    marks: Mapping[str, str]
