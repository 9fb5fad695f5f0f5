"""Compare the files in a table's folders with the files that the table's metadata lists."""

from pyarrow import fs

from lakefeed.clients.iceberg.reader import open_table
from tests.support.feed import Feed


def left_behind(feed: Feed) -> set[str]:
    """Return the orphan files of the feed's tables: files that no snapshot and no current or logged metadata lists.

    Fail if a file is missing that a snapshot lists.
    """
    table = open_table(feed.table, connections=feed.connections)
    known = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        known.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            known.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            known |= {each.data_file.file_path for each in entries}
    found = feed.store().get_file_info(fs.FileSelector(folder(feed), recursive=True))
    there = {f"s3://{each.path}" for each in found if each.is_file}
    gone = {each.replace("s3a://", "s3://") for each in known} - there
    assert not gone, f"files that a snapshot needs are gone: {gone}"
    return there - known


def leave_an_orphan(feed: Feed) -> None:
    """Create a file that no snapshot lists in the table's data folder."""
    with feed.store().open_output_stream(f"{folder(feed)}/data/left-behind.parquet") as file:
        file.write(b"left")


def folder(feed: Feed) -> str:
    """Return the location of the feed's table: bucket and path."""
    location = open_table(feed.table, connections=feed.connections).location()
    return str(location).partition("://")[2].rstrip("/")
