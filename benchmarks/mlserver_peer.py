"""MLServer in its fastest configuration, in its own environment; see `benchmarks.serving`.

`python -m benchmarks.mlserver_peer PORT FILE REST_PORT MAX_BATCH_SIZE MAX_BATCH_TIME`: one
process, on uvloop, without debug, metrics or access log; a batch time of 0 disables batching.
"""

import asyncio
import sys
from pathlib import Path

import numpy as np
import torch
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from mlserver.utils import install_uvloop_event_loop

from benchmarks.serving_network import read_network


class Classifier(MLModel):
    """The classifier as an MLServer runtime."""

    async def load(self) -> bool:
        """Read the network."""
        self.network = read_network(Path(self.settings.parameters.uri))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """One forward pass, with the fastest conversion from and to MLServer's lists."""
        (tensor,) = payload.inputs
        rows = np.array(tensor.data.root, np.float32).reshape(tensor.shape)
        with torch.inference_mode():
            scores = self.network(torch.from_numpy(rows))
        output = ResponseOutput(
            name="score",
            datatype="FP32",
            shape=list(scores.shape),
            data=scores.flatten().tolist(),
        )
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])


async def main() -> None:
    """Serve until the process is terminated."""
    port, file, rest_port, size, seconds = sys.argv[1:]
    settings = Settings(
        debug=False,
        host="127.0.0.1",
        grpc_port=int(port),
        http_port=int(rest_port),
        metrics_endpoint=None,
        parallel_workers=0,
        load_models_at_startup=False,
    )
    model = ModelSettings(
        name="judged",
        implementation=Classifier,
        max_batch_size=int(size),
        max_batch_time=float(seconds),
        parameters=ModelParameters(uri=file),
    )
    await MLServer(settings).start([model])


if __name__ == "__main__":
    install_uvloop_event_loop()
    asyncio.run(main())
