"""Script for the interpreter of KServe: `kserve_client_peer.py GRPC URL INPUT OUTPUT`.

The KServe SDK's two clients call a server with listed and with raw tensors, and write the scores
and other facts to OUTPUT. INPUT is a file with rows for each datatype.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

MODEL = "lending"

address, url, input_file, output_file = sys.argv[1:]
rows = dict(np.load(input_file))
names = [str(name) for name in rows.pop("names")]
scores, facts = {}, {}


def values_for(datatype):
    if datatype != "BYTES":
        return rows[datatype]
    texts = [repr(float(value)).encode() for value in rows[datatype].ravel()]
    return np.array(texts, object).reshape(rows[datatype].shape)


def tensor(name, values, datatype, *, binary):
    tensor_input = InferInput(name, list(values.shape), datatype)
    tensor_input.set_data_from_numpy(np.ascontiguousarray(values), binary_data=binary)
    return tensor_input


def whole(datatype, *, binary, **options):
    inputs = [tensor("features", values_for(datatype), datatype, binary=binary)]
    return InferRequest(MODEL, inputs, **options)


def columns(datatype, *, binary):
    pairs = zip(names, values_for(datatype).T, strict=True)
    inputs = [tensor(name, column, datatype, binary=binary) for name, column in pairs]
    return InferRequest(MODEL, inputs)


async def every_datatype(transport, infer):
    for datatype in rows:
        for binary in (True, False):
            if datatype == "FP16" and not binary:
                continue
            for build in (whole, columns):
                response = await infer(build(datatype, binary=binary))
                kind = "raw" if binary else "listed"
                name = f"{datatype} {transport} {build.__name__} {kind}"
                scores[name] = response.outputs[0].as_numpy()


def report(transport, response):
    parameters = response.parameters
    if transport == "grpc":
        parameters = {name: value.string_param for name, value in parameters.items()}
    facts[f"{transport} response"] = {
        "id": response.id,
        "version": response.model_version,
        "parameters": parameters,
        "outputs": [output.name for output in response.outputs],
        "verdict": [
            text.decode() if isinstance(text, bytes) else text
            for text in response.outputs[0].as_numpy().ravel().tolist()
        ],
    }


def two_outputs(*, binary):
    outputs = [RequestedOutput("verdict", {"binary_data": binary}), RequestedOutput("score")]
    return whole("FP32", binary=binary, request_id=f"r-{binary}", request_outputs=outputs)


async def by_grpc():
    async with InferenceGRPCClient(address) as client:
        facts["grpc health"] = [
            await client.is_server_live(),
            await client.is_server_ready(),
            await client.is_model_ready(MODEL),
        ]
        await every_datatype("grpc", client.infer)
        report("grpc", await client.infer(two_outputs(binary=True)))
        try:
            await client.infer(InferRequest("other", whole("FP32", binary=True).inputs))
        except grpc.RpcError as error:
            facts["grpc unknown"] = [error.code().name, error.details()]


async def by_rest():
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        facts["rest health"] = [
            await client.is_server_live(url),
            await client.is_server_ready(url),
            await client.is_model_ready(url, MODEL),
        ]
        facts["rest unknown ready"] = await client.is_model_ready(url, "other")
        await every_datatype("rest", lambda request: client.infer(url, request, MODEL))
        report("rest", await client.infer(url, two_outputs(binary=True), MODEL))
        try:
            await client.infer(url, whole("FP32", binary=True), "other")
        except httpx.HTTPStatusError as error:
            facts["rest unknown"] = [error.response.status_code, str(error)]


logging.disable(logging.CRITICAL)
asyncio.run(by_grpc())
asyncio.run(by_rest())
np.savez(output_file, **scores)
Path(output_file).with_suffix(".json").write_text(json.dumps(facts))
