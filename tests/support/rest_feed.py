"""A feed of one test, with its tables in a REST catalog."""

from dataclasses import dataclass
from typing import Any

from lakefeed.config.connections import Catalog, Connections
from tests.support.feed import Feed
from tests.support.servers.rest_catalog import RestCatalog


@dataclass
class RestFeed(Feed):
    """A feed whose tables are in a REST catalog."""

    catalog: str = "rest"
    server: RestCatalog | None = None

    @property
    def catalog_block(self) -> dict[str, Any]:
        assert self.server is not None
        block = {"type": "rest", "uri": self.server.url, "warehouse": self.server.warehouse}
        return {"catalogs": {"rest": {**block, "credential": "${REST_CREDENTIAL}"}}}

    @property
    def environment(self) -> dict[str, str]:
        assert self.server is not None
        return {**super().environment, "REST_CREDENTIAL": self.server.credential}

    @property
    def connections(self) -> Connections:
        assert self.server is not None
        block = {**self.catalog_block["catalogs"]["rest"], "credential": self.server.credential}
        known = Connections.from_environment(super().environment)
        return known.model_copy(update={"catalogs": {**known.catalogs, "rest": Catalog.model_validate(block)}})
