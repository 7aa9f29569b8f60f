"""Health and reflection of the gRPC transport, called with their official stubs."""

from __future__ import annotations

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.live.sidecar import MODEL

pytestmark = pytest.mark.live

OWN = ("inference.GRPCInferenceService", "evenhand.v1.Monitor")


def test_reflection_lists_every_service(channel):
    services = ProtoReflectionDescriptorDatabase(channel).get_services()
    assert {*OWN, "grpc.health.v1.Health"} <= set(services)


@pytest.mark.parametrize("service", OWN)
def test_reflection_describes_every_listed_service(channel, service):
    """Grpcurl needs the file of the service, with its methods."""
    file = ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol(service)
    (described,) = file.service
    assert f"{file.package}.{described.name}" == service
    methods = {method.name for method in described.method}
    assert methods >= (
        {"ModelInfer", "ServerLive"} if "inference" in service else {"RecordOutcomes"}
    )


@pytest.mark.parametrize("service", ["", MODEL, *OWN])
def test_health_is_serving(channel, service):
    request = health_pb2.HealthCheckRequest(service=service)
    response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)
    assert response.status == health_pb2.HealthCheckResponse.SERVING


def test_health_of_an_unknown_model_is_not_found(channel):
    request = health_pb2.HealthCheckRequest(service="another")
    with pytest.raises(grpc.RpcError) as error:
        health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("method", ["RepositoryIndex", "RepositoryModelLoad", "ModelStreamInfer"])
def test_extensions_of_other_servers_are_unimplemented(channel, method):
    call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
    with pytest.raises(grpc.RpcError) as error:
        call(b"", timeout=10)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("path", ["/healthz", "/v2/health/live", "/v2/health/ready"])
def test_http_probes_respond(serving, path):
    response = httpx.get(serving.url + path)
    assert response.status_code == 200
    assert set(response.json().values()) == {True}
