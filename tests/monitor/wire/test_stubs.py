"""The committed stubs equal the generated ones, and have the protocol's field numbers."""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from grpc_tools import protoc

from monitor.wire import (
    evenhand_pb2,
    evenhand_pb2_grpc,
    open_inference_pb2,
    open_inference_pb2_grpc,
)

ROOT = Path(__file__).parents[3]
PROTOS = ["open_inference", "evenhand"]


def test_regenerating_the_stubs_changes_nothing(tmp_path):
    arguments = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    files = [f"monitor/wire/{name}.proto" for name in PROTOS]
    include = Path(protoc.__file__).parent / "_proto"
    assert (
        protoc.main(["", f"-Imonitor/wire={ROOT / 'proto'}", f"-I{include}", *arguments, *files])
        == 0
    )
    generated = sorted((tmp_path / "monitor" / "wire").iterdir())
    assert len(generated) == 3 * len(PROTOS)
    for file in generated:
        committed = ROOT / "monitor" / "wire" / file.name
        assert committed.read_text() == file.read_text(), "run `make proto`"


# name number type, "*" for repeated, "map" for maps, as the protocol's own tables have them.
TENSOR = "name 1 string, datatype 2 string, shape 3 int64*, parameters 4 map, contents 5 message"
PROTOCOL = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live 1 bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready 1 bool",
    "ModelReadyRequest": "name 1 string, version 2 string",
    "ModelReadyResponse": "ready 1 bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name 1 string, version 2 string, extensions 3 string*",
    "ModelMetadataRequest": "name 1 string, version 2 string",
    "ModelMetadataResponse": (
        "name 1 string, versions 2 string*, platform 3 string, inputs 4 message*, "
        "outputs 5 message*, properties 6 map"
    ),
    "ModelMetadataResponse.TensorMetadata": "name 1 string, datatype 2 string, shape 3 int64*",
    "ModelInferRequest": (
        "model_name 1 string, model_version 2 string, id 3 string, parameters 4 map, "
        "inputs 5 message*, outputs 6 message*, raw_input_contents 7 bytes*"
    ),
    "ModelInferRequest.InferInputTensor": TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": "name 1 string, parameters 2 map",
    "ModelInferResponse": (
        "model_name 1 string, model_version 2 string, id 3 string, parameters 4 map, "
        "outputs 5 message*, raw_output_contents 6 bytes*"
    ),
    "ModelInferResponse.InferOutputTensor": TENSOR,
    "InferParameter": (
        "bool_param 1 bool, int64_param 2 int64, string_param 3 string, double_param 4 double, "
        "uint64_param 5 uint64"
    ),
    "InferTensorContents": (
        "bool_contents 1 bool*, int_contents 2 int32*, int64_contents 3 int64*, "
        "uint_contents 4 uint32*, uint64_contents 5 uint64*, fp32_contents 6 float*, "
        "fp64_contents 7 double*, bytes_contents 8 bytes*"
    ),
}
TYPES = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}


def messages(owner, prefix="") -> dict[str, str]:
    """Every message of an owner, with fields in the notation of the table above."""
    fields = {}
    for message in owner:
        if not message.GetOptions().map_entry:
            fields[prefix + message.name] = ", ".join(map(field_notation, message.fields))
            fields |= messages(message.nested_types, f"{prefix}{message.name}.")
    return fields


def field_notation(field) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return f"{field.name} {field.number} map"
    return f"{field.name} {field.number} {TYPES[field.type]}{'*' * field.is_repeated}"


def test_every_message_has_the_fields_of_the_protocol():
    result = messages(open_inference_pb2.DESCRIPTOR.message_types_by_name.values())
    assert result == PROTOCOL


def test_services_and_methods_have_the_names_of_the_protocol():
    service = open_inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert service.full_name == "inference.GRPCInferenceService"
    assert [method.name for method in service.methods] == [
        "ServerLive",
        "ServerReady",
        "ModelReady",
        "ServerMetadata",
        "ModelMetadata",
        "ModelInfer",
    ]
    monitor = evenhand_pb2.DESCRIPTOR.services_by_name["Monitor"]
    assert monitor.full_name == "evenhand.v1.Monitor"
    assert [method.name for method in monitor.methods] == ["RecordOutcomes"]
    assert open_inference_pb2_grpc.GRPCInferenceServiceServicer is not None
    assert evenhand_pb2_grpc.MonitorServicer is not None


def test_an_outcome_distinguishes_a_missing_label_from_zero():
    assert not evenhand_pb2.Outcome(request_id="a").HasField("label")
    assert evenhand_pb2.Outcome(request_id="a", label=0).HasField("label")
