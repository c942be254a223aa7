"""P4Runtime at a Unix socket: only who may reach the file controls the switch."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Serving, private_socket, serve

CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
# The child itself: to become another user before exec takes a fork, in which gRPC's threads may crash.
AS_NOBODY = f"import os; {CONNECT.partition('; ')[0]}; os.setgroups([]); os.setgid(65534); os.setuid(65534)"


def version(address: str) -> str:
    with grpc.insecure_channel(address) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        return str(stub.Capabilities(p4.CapabilitiesRequest(), timeout=120).p4runtime_api_version)


def test_a_private_socket_serves_and_leaves_nothing() -> None:
    with Switch({}) as switch, private_socket() as address:
        service = serve(switch, serving=Serving(address=address))
        assert (service.address, service.port) == (address, None)
        folder = Path(address.removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert version(address) == "1.4.1"
        service.close()
    assert not folder.exists()


def test_a_long_temporary_folder_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with Switch({}) as switch, private_socket() as address:
        service = serve(switch, serving=Serving(address=address))
        assert version(address) == "1.4.1"
        service.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect() -> None:
    with Switch({}) as switch, private_socket() as address:
        service = serve(switch, serving=Serving(address=address))
        path = address.removeprefix("unix:")
        as_us = subprocess.run([sys.executable, "-c", CONNECT, path], check=False)
        as_nobody = subprocess.run(
            [sys.executable, "-c", f"{AS_NOBODY}; {CONNECT}", path],
            check=False,
            capture_output=True,
            text=True,
        )
        service.close()
    assert as_us.returncode == 0
    assert as_nobody.returncode == 1
    assert "PermissionError" in as_nobody.stderr


def test_a_socket_in_use_is_not_taken_away() -> None:
    with Switch({}) as switch, Switch({}) as other, private_socket() as address:
        service = serve(switch, serving=Serving(address=address))
        with pytest.raises(OSError, match=f"cannot listen on {address}: another process does"):
            serve(other, serving=Serving(address=address))
        assert version(address) == "1.4.1"
        service.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("precious")
    with Switch({}) as switch:
        with pytest.raises(OSError, match="the file exists and is not a socket"):
            serve(switch, serving=Serving(address=f"unix:{file}"))
        with pytest.raises(OSError, match="has 1 to 107 bytes"):
            serve(switch, serving=Serving(address=f"unix:/tmp/{'x' * 200}"))
    assert file.read_text() == "precious"


def test_a_folder_that_is_not_there_is_told_by_us_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """gRPC would complain on standard error first, in its own words."""
    with Switch({}) as switch, pytest.raises(OSError, match="there is no folder"):
        serve(switch, serving=Serving(address=f"unix:{tmp_path}/missing/s1"))
    assert capfd.readouterr() == ("", "")
