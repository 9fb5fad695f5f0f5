"""Signs what a comparison has proven, so that others can check it without lakefeed's secrets and without the table."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from lakefeed.errors import ConfigError, MissingExtra, install_command
from lakefeed_receipts.content import ContentProof


def sign(proof: ContentProof, key_file: Path) -> dict[str, Any]:
    """Return a statement of the proof, signed by the Ed25519 key of a PEM file."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    crypto = _crypto()
    try:
        key = crypto.load_pem_private_key(key_file.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise _no_key(key_file) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(key_file)
    stated = {name: value for name, value in proof.as_dict().items() if name != "findings"}
    public = key.public_key().public_bytes_raw()
    return {
        "statement": stated,
        "public_key": base64.b64encode(public).decode(),
        "signature": base64.b64encode(key.sign(_signed(stated))).decode(),
    }


def check(document: Any, public_key: Path | None = None) -> dict[str, Any]:
    """Return what a statement says; raise a ConfigError if the signature is not the key's."""
    _crypto()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        stated = dict(document["statement"])
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(document["public_key"]))
        key.verify(base64.b64decode(document["signature"]), _signed(stated))
    except (InvalidSignature, KeyError, TypeError, ValueError) as error:
        raise ConfigError("the statement was changed, or is none", hint="ask for the file again") from error
    if public_key is not None:
        expected = load_pem_public_key(public_key.read_bytes())
        if not isinstance(expected, Ed25519PublicKey) or expected != key:
            raise ConfigError("another key has signed the statement", where=str(public_key))
    return stated


def _signed(stated: dict[str, Any]) -> bytes:
    return json.dumps(stated, sort_keys=True, separators=(",", ":")).encode()


def _crypto() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise MissingExtra("statements need the package cryptography", hint=install_command("receipts")) from error
    return serialization


def _no_key(path: Path) -> ConfigError:
    hint = "make one with: openssl genpkey -algorithm ed25519 -out key.pem"
    return ConfigError("the file has no private Ed25519 key without a password", where=str(path), hint=hint)
