"""Signs what a comparison has proven, so that others can check it without lakefeed's secrets and without the table."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import ConfigError, MissingExtra, install_command

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from lakefeed_receipts.content import ContentProof


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private Ed25519 key of a PEM file."""
    crypto, ed25519, _ = _crypto()
    try:
        key: Ed25519PrivateKey | None = crypto.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError):
        key = None
    if key is None or not isinstance(key, ed25519.Ed25519PrivateKey):
        hint = "make one with: openssl genpkey -algorithm ed25519 -out key.pem"
        raise ConfigError("the file has no private Ed25519 key without a password", where=str(path), hint=hint)
    return key


def sign(proof: ContentProof, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return a signed statement of the proof."""
    stated = {name: value for name, value in proof.as_dict().items() if name != "findings"}
    signed = {"public_key": key.public_key().public_bytes_raw(), "signature": key.sign(_signed(stated))}
    return {"statement": stated, **{name: base64.b64encode(value).decode() for name, value in signed.items()}}


def read_statement(path: Path, public_key: Path | None = None) -> dict[str, Any]:
    """Return the document of a signed statement; raise a ConfigError if the signature is not the key's."""
    crypto, ed25519, invalid = _crypto()
    try:
        document: dict[str, Any] = json.loads(_read(path))
        key = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(document["public_key"]))
        key.verify(base64.b64decode(document["signature"]), _signed(dict(document["statement"])))
    except (invalid, KeyError, TypeError, ValueError) as error:
        hint = "ask the signer for the file again"
        raise ConfigError("the file is not a signed statement, or was changed", where=str(path), hint=hint) from error
    if public_key is not None:
        try:
            expected = crypto.load_pem_public_key(_read(public_key))
        except ValueError as error:
            hint = "make one with: openssl pkey -in key.pem -pubout -out public.pem"
            raise ConfigError("the file has no public key", where=str(public_key), hint=hint) from error
        if expected != key:
            hint = "do not trust it, or ask the signer for the public key again"
            raise ConfigError("another key has signed the statement", where=str(path), hint=hint)
    return document


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "correct the path, or its rights"
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=str(path), hint=hint) from error


def _signed(stated: dict[str, Any]) -> bytes:
    return json.dumps(stated, sort_keys=True, separators=(",", ":")).encode()


def _crypto() -> tuple[Any, Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtra("statements need the package cryptography", hint=install_command("receipts")) from error
    return serialization, ed25519, InvalidSignature
