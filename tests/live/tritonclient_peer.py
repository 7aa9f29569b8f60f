"""Script for the interpreter of tritonclient: `tritonclient_peer.py ACTION INPUT OUTPUT`.

It does not import evenhand; INPUT and OUTPUT are files of serialized requests.
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


def parsed(data: bytes):
    request = service_pb2.ModelInferRequest.FromString(data)
    assert request == built(b""), "the parsed request differs from the one that the stubs build"
    return request


def client_request(_: bytes):
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


action, input_file, output_file = sys.argv[1:]
request = globals()[action](Path(input_file).read_bytes())
Path(output_file).write_bytes(request.SerializeToString(deterministic=True))
