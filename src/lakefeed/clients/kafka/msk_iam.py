"""Sign tokens for Amazon MSK's IAM login with Python's Kafka client: a token is a signed URL.

Java's client logs in with Amazon's jar and Amazon's own SASL mechanism. Brokers also accept these tokens through the
mechanism OAUTHBEARER, which Amazon's clients in other languages use:
https://github.com/aws/aws-msk-iam-sasl-signer-python.
"""

from __future__ import annotations

import base64
import time

from lakefeed.clients.s3 import keys_of_the_chain

SECONDS = 900


def token(region: str, *, profile: str | None = None) -> tuple[str, float]:
    """Sign a token with the keys of AWS's default chain; return the token and its expiry time, in seconds since 1970.

    Raises:
        MissingExtra: botocore is missing.
        AccessDenied: AWS's default chain has no keys.
    """
    keys = keys_of_the_chain("AWS", purpose="Amazon MSK's login by IAM", profile=profile)
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    address = f"https://kafka.{region}.amazonaws.com/"
    request = AWSRequest(method="GET", url=address, params={"Action": "kafka-cluster:Connect"})
    expires = time.time() + SECONDS
    SigV4QueryAuth(keys, "kafka-cluster", region, expires=SECONDS).add_auth(request)
    # The name of the client, for the broker's log; the signature does not cover this parameter.
    signed = f"{request.url}&User-Agent=lakefeed"
    return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode(), expires
