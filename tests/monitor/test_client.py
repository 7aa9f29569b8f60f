"""The client refuses what cannot be an address, before it connects."""

from __future__ import annotations

import pytest

from monitor import AsyncClient, Client
from monitor.errors import BadRequestError


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "grpc://127.0.0.1:8081"])
def test_a_url_is_refused_with_an_example_of_an_address(kind, url):
    with pytest.raises(BadRequestError, match="give host and port of gRPC"):
        kind(url, model="lending")
