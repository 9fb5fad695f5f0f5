"""Use Protobuf's reference library: protoc compiles schemas, and messages need no generated code."""

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

HERE = Path(__file__).parent
RICH = (HERE / "rich.proto").read_text()
MONEY = (HERE / "money.proto").read_text()


def descriptor_set(files: Mapping[str, str]) -> bytes:
    """Return the output of ``protoc --descriptor_set_out --include_imports`` for files given by name."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(folder, "set.bin")
        known = Path(grpc_tools.__file__).parent / "_proto"
        status = protoc.main(
            ["protoc", f"-I{folder}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}", *files]
        )
        assert status == 0
        return out.read_bytes()


def message_class(files: Mapping[str, str], name: str) -> Any:
    """Return the class of a message of these files, from a new descriptor pool."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(files)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@cache
def order() -> Any:
    """Return the class of ``shop.v1.Order`` in rich.proto."""
    return message_class({"money.proto": MONEY, "rich.proto": RICH}, "shop.v1.Order")
