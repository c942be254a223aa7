"""Encryption and client certificates, with a CA made for the test."""

import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Serving, Tls, serve
from tests.certificates import make

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA (ca.pem) and two certificates of it: server.pem for localhost, client.pem."""
    return make(tmp_path_factory.mktemp("tls"))


def version(port: int, credentials: Any) -> str:
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        return str(stub.Capabilities(p4.CapabilitiesRequest()).p4runtime_api_version)


def test_a_server_with_a_certificate(certificates: Path) -> None:
    tls = Tls(certificates / "server.pem", certificates / "server.key")
    with Switch({}) as switch:
        service = serve(switch, serving=Serving(address="localhost:0", tls=tls))
        ca = (certificates / "ca.pem").read_bytes()
        assert version(service.port, grpc.ssl_channel_credentials(ca)) == "1.4.1"
        service.close()


def test_clients_must_show_a_certificate_if_a_ca_for_them_is_given(certificates: Path) -> None:
    ca = certificates / "ca.pem"
    tls = Tls(certificates / "server.pem", certificates / "server.key", client_ca=ca)
    with Switch({}) as switch:
        service = serve(switch, serving=Serving(address="localhost:0", tls=tls))
        key, chain = ((certificates / f"client.{kind}").read_bytes() for kind in ("key", "pem"))
        with pytest.raises(grpc.RpcError) as error:
            version(service.port, grpc.ssl_channel_credentials(ca.read_bytes()))
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert version(service.port, grpc.ssl_channel_credentials(ca.read_bytes(), key, chain)) == "1.4.1"
        service.close()
