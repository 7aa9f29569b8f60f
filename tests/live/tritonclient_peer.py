"""Run by tritonclient's own interpreter: `tritonclient_peer.py ACTION GIVEN MADE`.

It knows nothing of evenhand; requests go in and out as files of bytes.
"""

import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from infer_request import build
from tritonclient.grpc import service_pb2
from tritonclient.grpc._utils import _get_inference_request


def built(_: bytes):
    return build(service_pb2.ModelInferRequest)


def parsed(given: bytes):
    request = service_pb2.ModelInferRequest.FromString(given)
    assert request == built(b""), "read another request than the stubs build"
    return request


def made_by_the_client(_: bytes):
    tensor = triton.InferInput("features", [3, 5], "FP32")
    tensor.set_data_from_numpy(np.arange(15, dtype=np.float32).reshape(3, 5))
    return _get_inference_request(
        model_name="lending",
        inputs=[tensor],
        model_version="",
        request_id="r-2",
        outputs=[triton.InferRequestedOutput("score")],
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        parameters={"source": "branch"},
    )


action, given, made = sys.argv[1:]
request = globals()[action](Path(given).read_bytes())
Path(made).write_bytes(request.SerializeToString(deterministic=True))
