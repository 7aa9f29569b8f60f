"""One request that uses every field and type of the protocol, built with any generated stubs."""

TYPED = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 1]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT64": ("uint64_contents", [2**64 - 1, 0]),
    "FP32": ("fp32_contents", [1.5, -0.0]),
    "FP64": ("fp64_contents", [1e300, 5e-324]),
    "BYTES": ("bytes_contents", [b"", b"\x00\xff"]),
}


def build(message):
    """Build the request with the `ModelInferRequest` class of some stubs."""
    request = message(model_name="lending", model_version="3", id="r-1")
    request.parameters["flag"].bool_param = True
    request.parameters["count"].int64_param = -(2**60)
    request.parameters["text"].string_param = "\u00e9\u4e2d"
    request.parameters["score"].double_param = 0.1
    request.parameters["big"].uint64_param = 2**64 - 1
    for datatype, (field, values) in TYPED.items():
        tensor = request.inputs.add(name=datatype, datatype=datatype, shape=[1, 2])
        getattr(tensor.contents, field).extend(values)
        tensor.parameters["k"].string_param = datatype
    request.outputs.add(name="score").parameters["binary_data"].bool_param = False
    request.raw_input_contents.extend([b"abc", b""])
    return request
