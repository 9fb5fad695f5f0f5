"""``lakefeed verify --content`` and ``lakefeed verify --statement``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import one_part_of, output_option, pipeline_argument, topic_option
from lakefeed.cli.output import emit, first_lines, styled
from lakefeed.offsets.ranges import OffsetRange

if TYPE_CHECKING:
    from lakefeed_receipts.content import ContentProof

A_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("verify --content")
@pipeline_argument
@click.option("--content", is_flag=True, required=True, help="Compare the values of rows with the commits' receipts.")
@click.option("--offsets", multiple=True, metavar="TOPIC:PARTITION:START:END", help="Only commits with these offsets.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of the topic.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N commits, chosen at random.")
@click.option("--sign", "sign_by", type=A_FILE, metavar="KEYFILE", help="Sign a statement by this Ed25519 key (PEM).")
@click.option("--to", type=A_FILE, help="The statement's file, with --sign.")
@topic_option
@output_option
def content(pipeline: Path, topic: str | None, sign_by: Path | None, to: Path | None, **chosen: Any) -> None:
    """Prove that rows still have the values that were written, or list the differences.

    Needs the block receipts in the pipeline file. Reads rows with Spark, changes nothing, and may run beside the feed.

    Exit status: 0 without faults, 1 with a fault, 2 if nothing can be compared.
    """
    from lakefeed_receipts.content import verify_content
    from lakefeed_receipts.statement import sign, signing_key

    if (sign_by is None) != (to is None):
        raise click.UsageError("give --sign and --to together")
    key = signing_key(sign_by) if sign_by is not None else None
    part = one_part_of(lakefeed.Pipeline.from_file(pipeline, to_run=False), topic)
    offsets = tuple(OffsetRange.parse(text) for text in chosen["offsets"])
    proof = verify_content(part, offsets=offsets, partition=chosen["partition"], sample=chosen["sample"])
    if key is not None and to is not None and not proof.faults:
        to.write_text(json.dumps(sign(proof, key), indent=2) + "\n")
    emit(proof.as_dict(), _lines(proof))
    raise Exit(1 if proof.faults else 0)


def _lines(proof: ContentProof) -> Iterator[str]:
    verdict, color = (f"{len(proof.faults):,} faults", "red") if proof.faults else ("as written", "green")
    yield styled(f"{proof.feed} in {proof.table}: ") + styled(verdict, fg=color, bold=True)
    part = "all" if proof.whole else "a part"
    yield f"  {part} of the rows compared: {proof.rows:,} rows of {proof.commits:,} commits"
    if proof.rows_unproven:
        yield f"  {proof.rows_unproven:,} rows have no receipt"
    yield from (f"  proven  {span.topic}-{span.partition} [{span.start}, {span.end})" for span in proof.proven)
    yield from first_lines([f"{each.kind:<16} {each.what}" for each in proof.findings], most=50)


@click.command("verify --statement")
@click.option("--statement", "file", type=A_FILE, required=True, help="The statement that --sign has written.")
@click.option("--public-key", type=A_FILE, help="The signer's public key (PEM); else the key in the statement.")
@output_option
def statement(file: Path, public_key: Path | None) -> None:
    """Check a signed statement; needs neither the table nor a secret.

    Without --public-key, the signature proves only that the statement is unchanged: compare the key by other means.
    """
    from lakefeed_receipts.statement import read_statement

    document = read_statement(file, public_key)
    stated = document["statement"]
    at = datetime.fromtimestamp(stated["at"], UTC).isoformat(timespec="seconds")
    what = f"{stated['feed']} in {stated['table']}, snapshot {stated['snapshot_id']}, at {at}: as written"
    part = f"  {'all' if stated['whole'] else 'a part'} of the rows; {stated['rows_unproven']:,} rows have no receipt"
    spans = (f"  proven  {span}" for span in stated["proven"])
    emit({"valid": True, **stated}, [f"signed by the key {document['public_key']}", what, part, *spans])
