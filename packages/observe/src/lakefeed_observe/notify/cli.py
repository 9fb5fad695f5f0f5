"""``lakefeed notify``: test the targets of a pipeline's messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click
from click.exceptions import Exit

import lakefeed
from lakefeed.cli.options import output_option, pipeline_argument, set_option
from lakefeed.cli.output import emit, styled
from lakefeed.errors import ConfigError
from lakefeed.messages.pages import page_command


@click.group()
def notify() -> None:
    """Test a feed's notifications: webhooks, mail, commands."""


@notify.command()
@pipeline_argument
@click.option(
    "--target", "names", multiple=True, metavar="NAME", help="Test only this target; may be given several times."
)
@set_option
@output_option
def test(pipeline: Path, names: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Send a test message to the targets of PIPELINE, and print their answers.

    Exit status: 0 if all targets accept the message, otherwise 1.
    """
    from lakefeed.monitor.feed_monitor import this_driver
    from lakefeed_observe.notify.deliver import NotDelivered, deliver
    from lakefeed_observe.notify.message import sample_message
    from lakefeed_observe.notify.settings import settings_of

    config = lakefeed.Pipeline.from_file(pipeline, overrides=overrides).config
    settings = settings_of(config)
    if settings is None:
        raise ConfigError(
            "the pipeline has no block notify",
            where=str(pipeline),
            hint=f"{page_command('alerts')} has examples to copy",
        )
    targets = settings.targets
    if unknown := [name for name in names if name not in targets]:
        raise ConfigError(
            f"no target is called '{unknown[0]}'", where="notify.targets", hint=f"known: {', '.join(targets)}"
        )
    message = sample_message(config.name, driver=this_driver(), at=time.time(), link=settings.link)
    documents = []
    for name in names or targets:
        try:
            answer, is_delivered = deliver(targets[name], message), True
        except NotDelivered as error:
            answer, is_delivered = error.reason, False
        documents.append({"target": name, "kind": targets[name].kind, "delivered": is_delivered, "answer": answer})

    def text() -> Iterator[str]:
        for document in documents:
            result, color = ("delivered", None) if document["delivered"] else ("not delivered", "red")
            yield styled(f"{document['target']} ({document['kind']}): {result}: {document['answer']}", fg=color)

    emit({"targets": documents}, text())
    raise Exit(0 if all(document["delivered"] for document in documents) else 1)
