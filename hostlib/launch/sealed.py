"""Texts that can be read and made only with a secret, for channels that other users can read and write.

A sealed text is encrypted and authenticated with AES-256-GCM (NIST SP 800-38D) of the package cryptography,
under a key derived from the secret by HKDF-SHA256 (RFC 5869) and a random nonce of 96 bits. HKDF does not
slow down guessing: the secret must be random. Sealing alone does not stop a replay of an older text: a
sealed text must name the request that it answers, as in `hostlib.launch.machines`.
"""

from __future__ import annotations

import functools
import importlib
import secrets
from typing import Any, Final

from hostlib.errors import ConfigError, RendezvousError

_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_VERSION: Final = b"ina sealed 1"
"""Authenticated with every text, so that a text of another layout is refused instead of misread."""


def require() -> None:
    """Raise ConfigError if the package `cryptography` is missing."""
    _module("cryptography.hazmat.primitives.ciphers.aead")


def seal(text: str, secret: str) -> str:
    """Encrypt a text for `unseal` with the same secret.

    Returns:
        Nonce, ciphertext and tag, in hexadecimal digits.

    Raises:
        ConfigError: the package `cryptography` is missing.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed: bytes = _cipher(secret).encrypt(nonce, text.encode(), _VERSION)
    return (nonce + sealed).hex()


def unseal(sealed: str, secret: str) -> str:
    """Decrypt a text from `seal`.

    Raises:
        ConfigError: the package `cryptography` is missing.
        RendezvousError: the text was sealed with another secret, changed, or cut off.
    """
    cipher = _cipher(secret)
    invalid_tag = _module("cryptography.exceptions").InvalidTag
    try:
        raw = bytes.fromhex(sealed)
        opened: bytes = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _VERSION)
    except (invalid_tag, ValueError) as error:
        raise RendezvousError(
            "the first rank's message was sealed with another INA_TOKEN than this rank's, or was changed"
        ) from error
    return opened.decode()


@functools.lru_cache(maxsize=4)
def _cipher(secret: str) -> Any:
    hashes = _module("cryptography.hazmat.primitives.hashes")
    hkdf = _module("cryptography.hazmat.primitives.kdf.hkdf")
    aead = _module("cryptography.hazmat.primitives.ciphers.aead")
    key = hkdf.HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=_VERSION).derive(secret.encode())
    return aead.AESGCM(key)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            "jobs on several machines need the package cryptography, which cannot be imported "
            f"({error}): pip install 'ina[machines]' on all of them"
        ) from error
