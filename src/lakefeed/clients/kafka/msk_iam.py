"""Amazon MSK's login by IAM for Python's Kafka client: a signed address as the token of OAUTHBEARER.

Java's client has a jar of Amazon's for it, with a mechanism of its own. Brokers take the same proof as a token, as
clients in other languages send it: https://github.com/aws/aws-msk-iam-sasl-signer-python.
"""

from __future__ import annotations

import base64
import time

from lakefeed.clients.s3 import keys_of_the_chain

SECONDS = 900


def token(region: str, *, profile: str | None = None) -> tuple[str, float]:
    """Sign a token with keys that are valid now; returns it and when it expires, in seconds since 1970.

    Raises:
        MissingExtra: botocore is missing.
        AccessDenied: AWS's default chain gives no keys.
    """
    keys = keys_of_the_chain("AWS", purpose="Amazon MSK's login by IAM", profile=profile)
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    address = f"https://kafka.{region}.amazonaws.com/"
    request = AWSRequest(method="GET", url=address, params={"Action": "kafka-cluster:Connect"})
    expires = time.time() + SECONDS
    SigV4QueryAuth(keys, "kafka-cluster", region, expires=SECONDS).add_auth(request)
    # Not signed: for the broker's log.
    signed = f"{request.url}&User-Agent=lakefeed"
    return base64.urlsafe_b64encode(signed.encode()).rstrip(b"=").decode(), expires
