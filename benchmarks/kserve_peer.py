"""KServe's Python server, in its own environment; see `benchmarks.serving`.

`python -m benchmarks.kserve_peer PORT FILE`: only its gRPC server, on uvloop, without a
log line per request.
"""

import logging
import sys
from pathlib import Path

import torch
import uvloop
from grpc import aio
from grpc.aio import _server
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelRepository
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.grpc.server import GRPCServer
from kserve.protocol.model_repository_extension import ModelRepositoryExtension

from benchmarks.serving_network import read_network


class Classifier(Model):
    """The classifier as a KServe model."""

    def __init__(self, file: Path) -> None:
        super().__init__("judged")
        self.network = read_network(file)
        self.ready = True

    def predict(self, payload: InferRequest, *_: object) -> InferResponse:
        """One forward pass; raw tensors in and out."""
        rows = torch.from_numpy(payload.inputs[0].as_numpy().copy())
        with torch.inference_mode():
            scores = self.network(rows).numpy()
        output = InferOutput(name="score", shape=list(scores.shape), datatype="FP32")
        output.set_data_from_numpy(scores)
        return InferResponse(
            response_id=payload.id, model_name=self.name, infer_outputs=[output], from_grpc=True
        )


def bind_loopback(server: aio.Server, address: str) -> int:
    """KServe binds every interface; bind the loopback interface only."""
    return add_port(server, address.replace("[::]", "127.0.0.1"))


add_port = _server.Server.add_insecure_port
_server.Server.add_insecure_port = bind_loopback


async def main() -> None:
    """Serve until the process is terminated."""
    models = ModelRepository()
    models.update(Classifier(Path(sys.argv[2])))
    limits = {"grpc_max_send_message_length": 2**23, "grpc_max_receive_message_length": 2**23}
    server = GRPCServer(
        int(sys.argv[1]), DataPlane(models), ModelRepositoryExtension(models), limits
    )
    await server.start(4)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    uvloop.run(main())
