"""Bare servers of `benchmarks.serving`: grpc.aio on uvloop, and one function between the bytes.

`python -m benchmarks.serving_bare echo|eager PORT FILE`: the floor, which sends FILE whatever it is
asked, and the way that a data scientist would take first, which computes the forward and both
gradients of each request by autograd.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import torch
import uvloop
from torch import Tensor

from benchmarks.serving_network import read_network, status_network
from monitor.wire.open_inference_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
    ModelReadyResponse,
)

__all__ = ["Judged", "answering", "serve"]

_SERVICE = "/inference.GRPCInferenceService/"
_READY = ModelReadyResponse(ready=True).SerializeToString()

# From the bytes of a request to the bytes of its answer.
Answer = Callable[[bytes], bytes]
# From features `[n, d]` to scores `[n, 1]` and prediction sensitivities `[n]`.
Judged = Callable[[Tensor], tuple[Tensor, Tensor]]


def serve(port: int, answer: Answer) -> None:
    """Answer until the process is ended."""

    async def infer(request: bytes, _: object) -> bytes:
        return answer(request)

    async def ready(_request: bytes, _: object) -> bytes:
        return _READY

    handlers = {
        _SERVICE + "ModelInfer": grpc.unary_unary_rpc_method_handler(infer),
        _SERVICE + "ModelReady": grpc.unary_unary_rpc_method_handler(ready),
    }

    class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: grpc.HandlerCallDetails) -> object:
            return handlers.get(details.method)

    async def run() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Handlers(),))
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await server.wait_for_termination()

    uvloop.run(run())


def answering(judged: Judged) -> Answer:
    """Read a request, judge it, write the answer."""

    def answer(data: bytes) -> bytes:
        request = ModelInferRequest.FromString(data)
        (given,) = request.inputs
        rows = np.frombuffer(bytearray(request.raw_input_contents[0]), "<f4")
        scores, sensitivity = judged(torch.from_numpy(rows.reshape(*given.shape)))
        response = ModelInferResponse(
            model_name=request.model_name,
            id=request.id,
            raw_output_contents=[scores.numpy().tobytes()],
        )
        response.outputs.add(name="score", datatype="FP32", shape=scores.shape)
        told = ",".join(f"{value:.6g}" for value in sensitivity.tolist())
        response.parameters["prediction_sensitivity"].string_param = told
        return response.SerializeToString()

    return answer


def _eager(file: Path) -> Judged:
    """One forward of each network, and a backward of each."""
    classifier = read_network(file)
    status = status_network(next(classifier.parameters()).shape[1]).requires_grad_(
        requires_grad=False
    )

    def judged(features: Tensor) -> tuple[Tensor, Tensor]:
        tracked = features.requires_grad_()
        scores = classifier(tracked)
        (of_f,) = torch.autograd.grad(scores.sigmoid().sum(), tracked)
        (of_a,) = torch.autograd.grad(status(tracked).softmax(1)[:, 1].sum(), tracked)
        return scores.detach(), (of_f * of_a).abs().sum(1)

    return judged


def main() -> None:
    """Start the server that is asked for."""
    kind, port, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if kind == "eager":
        serve(port, answering(_eager(file)))
    else:
        prebuilt = file.read_bytes()
        serve(port, lambda _: prebuilt)


if __name__ == "__main__":
    main()
