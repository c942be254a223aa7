"""Texts for whoever knows a secret: they can be published where anybody reads and writes.

The keystream is HMAC-SHA256 of a fresh nonce and a counter, and another HMAC over all of it shows changes. A
secret has to be hard to guess, for who sees a text can try.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from hostlib.errors import RendezvousError

_NONCE: Final = 16
_PROOF: Final = 32


def seal(text: str, secret: str) -> str:
    """Return a text that `unseal` reads with the same secret, in hexadecimal digits."""
    nonce = secrets.token_bytes(_NONCE)
    body = nonce + _crypt(text.encode(), nonce, secret)
    return (_mac(secret, b"proof", body) + body).hex()


def unseal(sealed: str, secret: str) -> str:
    """Return the text. Raises RendezvousError if it was sealed with another secret, or changed."""
    try:
        raw = bytes.fromhex(sealed)
    except ValueError:
        raw = b""
    proof, body = raw[:_PROOF], raw[_PROOF:]
    if len(body) < _NONCE or not hmac.compare_digest(proof, _mac(secret, b"proof", body)):
        raise RendezvousError("the first rank's message was sealed with another INA_TOKEN than this rank's")
    return _crypt(body[_NONCE:], body[:_NONCE], secret).decode()


def proof(text: str, secret: str) -> str:
    """Return what shows that whoever says a text knows the secret."""
    return _mac(secret, b"said", text.encode()).hex()


def _crypt(data: bytes, nonce: bytes, secret: str) -> bytes:
    blocks = -(-len(data) // 32)
    stream = b"".join(_mac(secret, b"stream", nonce + block.to_bytes(8, "big")) for block in range(blocks))
    return bytes(one ^ other for one, other in zip(data, stream, strict=False))


def _mac(secret: str, use: bytes, data: bytes) -> bytes:
    return hmac.new(secret.encode(), use + b" " + data, hashlib.sha256).digest()
