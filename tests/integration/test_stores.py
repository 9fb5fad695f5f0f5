"""An ordinary S3 client reads and writes all stores of the embedded stack."""

from pathlib import Path

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from lakefeed_local.stack import Endpoints, Stack


def objects(endpoints: Endpoints) -> S3FileSystem:
    return S3FileSystem(
        access_key=endpoints.access_key,
        secret_key=endpoints.secret_key.get_secret_value(),
        endpoint_override=endpoints.s3_endpoint,
        region=endpoints.region,
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "store",
    [
        pytest.param("s3proxy", marks=pytest.mark.slow),
        pytest.param("minio", marks=pytest.mark.slow),
        pytest.param("versitygw", marks=pytest.mark.slow),
    ],
)
def test_objects_survive_a_restart_of_the_stack(tmp_path: Path, store: str) -> None:
    stack = Stack(tmp_path, store=store)
    # The object "large" exceeds S3's smallest part, so the client uploads it in several parts.
    contents = {"small": b"x", "deep/er/key": b"", "large": bytes(range(256)) * (48 << 10)}
    try:
        endpoints = stack.up()
        for key, content in contents.items():
            with objects(endpoints).open_output_stream(f"{endpoints.bucket}/{key}") as stream:
                stream.write(content)
        stack.down()
        assert stack.up() == endpoints
        for key, content in contents.items():
            with objects(endpoints).open_input_stream(f"{endpoints.bucket}/{key}") as stream:
                assert stream.read() == content
        listed = objects(endpoints).get_file_info(FileSelector(endpoints.bucket, recursive=True))
        assert {f"{endpoints.bucket}/{key}" for key in contents} <= {info.path for info in listed}
    finally:
        stack.down(erase=True)
