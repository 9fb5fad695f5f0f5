"""Keys from AWS's default chain, as Spark's clients find them: web identity, profile, container, instance."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from lakefeed.clients.http import TIMEOUT_SECONDS
from lakefeed.config import trust
from lakefeed.errors import AccessDenied, MissingExtra

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials


def keys_of_the_chain(kind: str, *, purpose: str, profile: str | None = None) -> ReadOnlyCredentials:
    """Return keys that are valid now.

    Args:
        kind: what they are for, in one word, for messages.
        purpose: why botocore is needed, for the message if it is missing.
        profile: take this one of ``~/.aws``. Default: AWS_PROFILE, else whatever the chain finds.

    Raises:
        MissingExtra: botocore, which knows the chain, is missing.
        AccessDenied: the chain has none, or a part of it does not give any.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError:
        raise MissingExtra.of("botocore", "aws", purpose) from None
    # It logs a failure with its stack: the error below says it once.
    logging.getLogger("botocore.credentials").disabled = True
    where = "AWS's default chain: environment, web identity, profile, container, instance"
    session = Session(profile=profile)
    # Its own setting is AWS_CA_BUNDLE.
    if (bundle := trust.authorities_file()) is not None:
        session.set_config_variable("ca_bundle", bundle)
    session.set_config_variable("metadata_service_timeout", TIMEOUT_SECONDS)
    try:
        found = session.get_credentials()
        frozen = None if found is None else found.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        what = f"no {kind} keys were given out: {re.sub(r'https?://[^ ]*[?][^ ]*', '(address)', str(error))}"
        raise AccessDenied(what, where=where) from None
    if frozen is None:
        other = "the block s3, or " if kind == "S3" else ""
        hint = f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or {other}give this machine a role"
        raise AccessDenied(f"no {kind} keys were found", where=where, hint=hint)
    return frozen
