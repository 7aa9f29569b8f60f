"""Bare servers of `benchmarks.serving`: grpc.aio on uvloop, and one function per request.

`python -m benchmarks.serving_bare echo|eager PORT FILE`. The echo server, a lower bound on the
cost, sends FILE for every request. The eager server computes the forward pass and both gradients of
each request by autograd, which is the most obvious implementation.
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

__all__ = ["Scorer", "respond_with", "serve"]

_SERVICE = "/inference.GRPCInferenceService/"
_READY = ModelReadyResponse(ready=True).SerializeToString()

# From the bytes of a request to the bytes of its response.
Responder = Callable[[bytes], bytes]
# From features `[n, d]` to scores `[n, 1]` and prediction sensitivities `[n]`.
Scorer = Callable[[Tensor], tuple[Tensor, Tensor]]


def serve(port: int, respond: Responder) -> None:
    """Serve until the process is terminated."""

    async def infer(request: bytes, _: object) -> bytes:
        return respond(request)

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


def respond_with(score: Scorer) -> Responder:
    """Decode a request, score it, encode the response."""

    def respond(data: bytes) -> bytes:
        request = ModelInferRequest.FromString(data)
        (tensor,) = request.inputs
        rows = np.frombuffer(bytearray(request.raw_input_contents[0]), "<f4")
        scores, sensitivity = score(torch.from_numpy(rows.reshape(*tensor.shape)))
        response = ModelInferResponse(
            model_name=request.model_name,
            id=request.id,
            raw_output_contents=[scores.numpy().tobytes()],
        )
        response.outputs.add(name="score", datatype="FP32", shape=scores.shape)
        text = ",".join(f"{value:.6g}" for value in sensitivity.tolist())
        response.parameters["prediction_sensitivity"].string_param = text
        return response.SerializeToString()

    return respond


def _eager(file: Path) -> Scorer:
    """One forward and one backward pass of each network."""
    classifier = read_network(file)
    status = status_network(next(classifier.parameters()).shape[1]).requires_grad_(
        requires_grad=False
    )

    def score(features: Tensor) -> tuple[Tensor, Tensor]:
        tracked = features.requires_grad_()
        scores = classifier(tracked)
        (of_f,) = torch.autograd.grad(scores.sigmoid().sum(), tracked)
        (of_a,) = torch.autograd.grad(status(tracked).softmax(1)[:, 1].sum(), tracked)
        return scores.detach(), (of_f * of_a).abs().sum(1)

    return score


def main() -> None:
    """Start the requested server."""
    kind, port, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if kind == "eager":
        serve(port, respond_with(_eager(file)))
    else:
        prebuilt = file.read_bytes()
        serve(port, lambda _: prebuilt)


if __name__ == "__main__":
    main()
