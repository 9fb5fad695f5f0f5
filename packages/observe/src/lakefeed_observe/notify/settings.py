"""The block ``notify`` of a pipeline file: the targets of messages (webhooks, mail, commands), and their triggers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.errors import MessageError
from email.headerregistry import Address
from email.utils import parseaddr
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from lakefeed.config.base import ConfigProblem, Model, OneOf, checked, spelled
from lakefeed.config.blocks import Block, PipelineBlocks
from lakefeed.config.connections import refuse_credentials
from lakefeed.config.secrets import SECRET_KEY, Text
from lakefeed.config.values import Count, Duration, Period, seconds_of
from lakefeed.messages.redaction import redacted

Trigger = Literal[
    "stopped",
    "failed",
    "error",
    "error_budget",
    "request_budget",
    "audit",
    "lag",
    "no_data",
    "no_commit",
    "schema",
    "dead_letters",
    "paused",
    "hangs",
]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
WebhookFormat = Literal["slack", "alertmanager", "alertmanager_webhook", "json"]

_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def _require_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        # The address may be a secret, so the error's text must not contain it.
        raise ValueError("write the address as http://host/… or https://host/…")
    return url


def _require_public_web_address(url: str) -> str:
    refuse_credentials(_require_web_address(url), instead="a login at the page")
    return url


def _require_secret_web_address(url: SecretStr) -> SecretStr:
    _require_web_address(url.get_secret_value())
    return url


def _require_mailbox(text: str) -> None:
    _, address = parseaddr(text)
    if not text.isprintable() or "," in text or not re.fullmatch(r"[^\s@<>\"]+@[^\s@<>\"]+", address):
        raise ValueError("write the mail address as name@example.com or Name <name@example.com>")
    try:
        Address(addr_spec=address)
    except (MessageError, ValueError, IndexError):
        raise ValueError(f"'{address}' is not a mail address: use letters, digits, and single dots") from None


def _require_a_day_at_most(text: str) -> None:
    if seconds_of(text) > 86_400:
        raise ValueError("the time must be at most 1 day")


Mailbox = Annotated[str, checked(_require_mailbox)]
Window = Annotated[Period, checked(_require_a_day_at_most)]


class Webhook(Model):
    """The driver posts every message to an address."""

    url: Annotated[SecretStr, AfterValidator(_require_secret_web_address)]
    """https://…; write it as ${NAME} if it is a secret, as Slack's are. No message or log contains it."""
    format: WebhookFormat = "json"
    """Format of the body. slack: for Slack, Mattermost and Rocket.Chat. alertmanager: for Alertmanager itself (url:
    http://host:9093), which gets POST /api/v2/alerts. alertmanager_webhook: the format in which Alertmanager calls
    webhooks. json: the whole message, with lakefeed's names."""
    headers: dict[str, Text] = Field(default_factory=dict)
    """Further headers, such as Authorization; write secret values as ${NAME}."""
    ca_file: Path | None = Field(None, description="File of trusted certificates (PEM). Default: Python's.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for name, text in self.headers.items():
            if not re.fullmatch(_HEADER, name):
                hint = "a header's name has letters, digits and -"
                yield ConfigProblem(f"'{name}' is not a valid name of a header", key="headers", hint=hint)
            elif name.lower() in ("host", "content-length", "content-type", "transfer-encoding"):
                yield ConfigProblem(f"lakefeed sets the header {name} itself", key="headers", hint="remove the header")
            if not text.isprintable() or not text.isascii():
                what = f"the value of the header {name} has characters that HTTP forbids"
                yield ConfigProblem(what, key="headers", hint="write the value as one line of ASCII")


class Mail(Model):
    """The driver sends every message as a mail by SMTP."""

    host: Annotated[str, spelled(r"[A-Za-z0-9._:-]+", "'{}' is not the name of a host")]
    """The mail server."""
    port: int | None = Field(
        None, ge=1, le=65535, description="Server port. Default: 587 for starttls, 465 for tls, 25 for none."
    )
    security: Literal["starttls", "tls", "none"] = "starttls"
    """Encryption: starttls, or tls from the first byte. none is only for a local server without a password."""
    user: str | None = Field(None, min_length=1, description="The user who logs in. Default: no login.")
    password: SecretStr | None = Field(None, description="The user's password; give it as ${NAME}.")
    from_: Mailbox = Field(alias="from", description="The sender's address.")
    to: list[Mailbox] = Field(min_length=1, max_length=50, description="The recipients' addresses.")
    ca_file: Path | None = Field(None, description="File of trusted certificates (PEM). Default: Python's.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        if (self.user is None) != (self.password is None):
            yield ConfigProblem("user and password belong together", key="user", hint="give both or none")
        if self.security == "none" and self.password is not None:
            what = "the password would cross the network as plain text"
            yield ConfigProblem(what, key="security", hint="write security: starttls, or tls")

    @property
    def server_port(self) -> int:
        return self.port or {"starttls": 587, "tls": 465, "none": 25}[self.security]


class Command(Model):
    """The driver starts a program for every message, and writes the message as JSON to its standard input."""

    run: list[str] = Field(min_length=1)
    """The program and its arguments, as a list; no shell is used. Put secrets into environment, because every user of
    the machine can read arguments."""
    environment: dict[str, Text] = Field(default_factory=dict)
    """Environment variables; write secrets as ${NAME}. The program also has PATH, HOME, LANG, TZ, TMPDIR,
    LAKEFEED_FEED, LAKEFEED_TRIGGER and LAKEFEED_STATUS, and no other variables of the driver."""
    timeout: Period = Field("10 seconds", description="The driver kills the program and its children after this time.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for argument in self.run:
            is_option = argument.startswith("-") and SECRET_KEY.search(argument.partition("=")[0].lstrip("-"))
            if is_option or redacted(argument) != argument:
                what = "an argument is a secret, and every user of the machine can read arguments"
                yield ConfigProblem(what, key="run", hint="write environment: {NAME: ${NAME}}, which the program reads")
                break
        if any("\0" in argument for argument in self.run) or not self.run[0]:
            what = "the program's name is empty, or an argument has a zero byte"
            yield ConfigProblem(what, key="run", hint="write run: [program, argument, …]")
        for name in self.environment:
            if not re.fullmatch(_VARIABLE, name):
                hint = "a variable's name has letters, digits and underscores"
                yield ConfigProblem(f"'{name}' is not a valid name of a variable", key="environment", hint=hint)
        if seconds_of(self.timeout) > 300:
            what = f"a command may run for 5 minutes at most, not {self.timeout}"
            yield ConfigProblem(what, key="timeout", hint="write timeout: 5 minutes")


class NotifyTarget(OneOf):
    """One receiver of messages: webhook, mail or command."""

    __kinds__ = ("webhook", "mail", "command")
    webhook: Webhook | None = None
    mail: Mail | None = None
    command: Command | None = None
    only: list[Trigger] | None = Field(None, min_length=1, description="Only these triggers. Default: all.")

    def takes(self, trigger: str) -> bool:
        """Return True if the target gets messages of this trigger; all targets get test messages."""
        return self.only is None or trigger not in TRIGGERS or trigger in self.only


class LagBound(Model):
    """Limits of the lag; at least one is required."""

    records: int | None = Field(None, ge=0, description="The most records that are not committed yet.")
    seconds: int | None = Field(None, ge=0, description="The greatest age of a record that is not committed yet.")
    for_: Duration = Field(
        "5 minutes",
        alias="for",
        description="How long the lag must stay above a limit before a message, and below before the resolution.",
    )

    def _contradictions(self) -> Iterator[str]:
        if self.records is None and self.seconds is None:
            yield "lag requires records or seconds"


class DeadLetterBound(Model):
    """Limits of dead letters; at least one is required."""

    count: int | None = Field(None, ge=0, description="The largest number of dead letters.")
    share: float | None = Field(None, ge=0, le=1, description="The greatest share of dead letters: 0.01 for 1 %.")
    within: Window = Field("10 minutes", description="The time over which dead letters are counted.")

    def _contradictions(self) -> Iterator[str]:
        if self.count is None and self.share is None:
            yield "dead_letters requires count or share"


class When(Model):
    """The triggers of messages. Triggers with a limit are off until the limit is set."""

    stopped: bool = Field(True, description="The run has ended as requested.")
    failed: bool = Field(True, description="The run has ended with an error, or could not begin.")
    error: bool = Field(True, description="An error that does not end the run, for example in one of many tables.")
    error_budget: bool = Field(
        True, description="The run has ended because of more dead letters than dead_letters.budget allows."
    )
    request_budget: bool = Field(True, description="A batch made more S3 requests than the block budget allows.")
    audit: bool = Field(True, description="The audit of a branch has failed; the feed still writes to the branch.")
    schema_: bool = Field(True, alias="schema", description="The schema of the rows has changed.")
    paused: bool = Field(True, description="A user has paused the feed, or one of its sinks waits.")
    hangs: bool = Field(True, description="The driver hangs: its main loop has not run for a minute.")
    lag: LagBound | None = Field(None, description="The feed is too far behind.")
    no_data: Period | None = Field(None, description="No record has arrived for this long.")
    no_commit: Period | None = Field(None, description="Records wait, but no batch was committed for this long.")
    dead_letters: DeadLetterBound | None = Field(None, description="There are too many dead letters.")


class Notify(Block):
    """The driver sends messages about the feed to users and programs. No target can delay the feed."""

    targets: dict[str, NotifyTarget] = Field(min_length=1, description="The receivers, under names that you choose.")
    when: When = Field(default_factory=When)
    cool_down: Duration = "10 minutes"
    """Least time between two messages with the same cause. Events in between only count in the later message."""
    most_per_hour: Count = Field(
        60, description="Most messages to a target in an hour; the next message counts the omitted ones."
    )
    link: Annotated[str, checked(_require_public_web_address)] | None = None
    """Every message links to this address, which must contain no secret. Default: dashboard.public_url."""

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for name in self.targets:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name):
                hint = "use at most 61 letters, digits, '_', '.' and '-', a letter or digit first"
                yield ConfigProblem(f"'{name}' cannot name a target", key="targets", hint=hint)


def settings_of(config: PipelineBlocks) -> Notify | None:
    """Return the block ``notify``; if the block has no link, use the dashboard's address as the link."""
    notify = config.block(Notify)
    if notify is None or notify.link is not None:
        return notify
    pages = [block.page_url for block in config.added_blocks.values()]
    return notify.model_copy(update={"link": next(filter(None, pages), None)})
