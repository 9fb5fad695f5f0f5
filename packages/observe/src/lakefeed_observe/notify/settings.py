"""The block of a pipeline file for messages: their targets (webhooks, mail, commands) and triggers."""

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
_DAY = 86_400


def _require_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        # The address may be a secret, so the error's text must not contain it.
        raise ValueError("an address is http://host/… or https://host/…")
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
        raise ValueError("a mail address is name@example.com or Name <name@example.com>")
    try:
        Address(addr_spec=address)
    except (MessageError, ValueError, IndexError):
        raise ValueError(f"'{address}' is no mail address: it has letters, digits, and single dots") from None


def _require_a_day_at_most(text: str) -> None:
    if seconds_of(text) > _DAY:
        raise ValueError("it is a day at most")


Mailbox = Annotated[str, checked(_require_mailbox)]
Window = Annotated[Period, checked(_require_a_day_at_most)]


class Webhook(Model):
    """A POST request to an address for every message."""

    url: Annotated[SecretStr, AfterValidator(_require_secret_web_address)]
    """https://…; write it as ${NAME} if it is a secret, as Slack's are: no message or log contains it."""
    format: WebhookFormat = "json"
    """Format of the body. slack: for Slack, Mattermost and Rocket.Chat. alertmanager: for Alertmanager's own address
    (http://host:9093), by POST /api/v2/alerts. alertmanager_webhook: the format of Alertmanager's webhook calls. json:
    the whole message, with lakefeed's names."""
    headers: dict[str, Text] = Field(default_factory=dict)
    """Further headers, such as Authorization; write secret values as ${NAME}."""
    ca_file: Path | None = Field(None, description="Certificates (PEM) to trust. Default: those that Python trusts.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for name, text in self.headers.items():
            if not re.fullmatch(_HEADER, name):
                yield ConfigProblem("a header's name has letters, digits and -", key="headers")
            elif name.lower() in ("host", "content-length", "content-type", "transfer-encoding"):
                yield ConfigProblem(f"the header {name} is lakefeed's own", key="headers")
            if not text.isprintable() or not text.isascii():
                yield ConfigProblem(
                    f"the value of the header {name} has letters that no header can have", key="headers"
                )


class Mail(Model):
    """A mail by SMTP for every message."""

    host: Annotated[str, spelled(r"[A-Za-z0-9._:-]+", "'{}' is no host's name")]
    """The mail server."""
    port: int | None = Field(None, ge=1, le=65535, description="Default: 587 for starttls, 465 for tls, 25 for none.")
    security: Literal["starttls", "tls", "none"] = "starttls"
    """Encryption: starttls, or tls from the connection's begin. none is only for a local server without a password."""
    user: str | None = Field(None, min_length=1, description="Who logs in. Default: no login.")
    password: SecretStr | None = Field(None, description="The user's password; give it as ${NAME}.")
    from_: Mailbox = Field(alias="from", description="The sender's address.")
    to: list[Mailbox] = Field(min_length=1, max_length=50, description="The recipients' addresses.")
    ca_file: Path | None = Field(None, description="Certificates (PEM) to trust. Default: those that Python trusts.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        if (self.user is None) != (self.password is None):
            yield ConfigProblem("user and password belong together", key="user", hint="give both or none")
        if self.security == "none" and self.password is not None:
            what = "the password would cross the network as plain text"
            yield ConfigProblem(what, key="security", hint="security: starttls, or tls")

    @property
    def server_port(self) -> int:
        """The port to connect to."""
        return self.port or {"starttls": 587, "tls": 465, "none": 25}[self.security]


class Command(Model):
    """A program that is started for every message, with the message as JSON on its standard input."""

    run: list[str] = Field(min_length=1)
    """The program and its arguments, as a list; no shell is used. Put secrets into environment, because every user of
    the machine can read arguments."""
    environment: dict[str, Text] = Field(default_factory=dict)
    """Environment variables; write secrets as ${NAME}. The program also has PATH, HOME, LANG, TZ, TMPDIR,
    LAKEFEED_FEED, LAKEFEED_TRIGGER and LAKEFEED_STATUS, and no other variables of the driver."""
    timeout: Period = Field("10 seconds", description="After that it is killed with all that it has started.")

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for argument in self.run:
            is_option = argument.startswith("-") and SECRET_KEY.search(argument.partition("=")[0].lstrip("-"))
            if is_option or redacted(argument) != argument:
                what = "an argument is a secret, and every user of the machine can read arguments"
                yield ConfigProblem(what, key="run", hint="environment: {NAME: ${NAME}}, which the program reads")
                break
        if any("\0" in argument for argument in self.run) or not self.run[0]:
            yield ConfigProblem("the first word is the program, and no word has a zero byte", key="run")
        for name in self.environment:
            if not re.fullmatch(_VARIABLE, name):
                what = "a variable's name has letters, digits and underscores"
                yield ConfigProblem(what, key="environment")
        if seconds_of(self.timeout) > 300:
            yield ConfigProblem("a command has 5 minutes at most", key="timeout")


class NotifyTarget(OneOf):
    """One receiver of messages: webhook, mail or command."""

    __kinds__ = ("webhook", "mail", "command")
    webhook: Webhook | None = None
    mail: Mail | None = None
    command: Command | None = None
    only: list[Trigger] | None = Field(None, min_length=1, description="These triggers alone. Default: all.")

    def takes(self, trigger: str) -> bool:
        """Check whether the target gets messages of this trigger; all targets get tests."""
        return self.only is None or trigger not in TRIGGERS or trigger in self.only


class LagBound(Model):
    """Limits of the lag; at least one is required."""

    records: int | None = Field(None, ge=0, description="So many records that are not committed.")
    seconds: int | None = Field(None, ge=0, description="The age of the oldest of them.")
    for_: Duration = Field("5 minutes", alias="for", description="Above a bound for so long, and for so long below.")

    def _contradictions(self) -> Iterator[str]:
        if self.records is None and self.seconds is None:
            yield "lag requires records or seconds"


class DeadLetterBound(Model):
    """Limits of dead letters; at least one is required."""

    count: int | None = Field(None, ge=0, description="More than so many.")
    share: float | None = Field(None, ge=0, le=1, description="More than this share of the records: 0.01 for 1 %.")
    within: Window = Field("10 minutes", description="How far it looks back.")

    def _contradictions(self) -> Iterator[str]:
        if self.count is None and self.share is None:
            yield "dead_letters requires count or share"


class When(Model):
    """The triggers of messages. Triggers with a limit are off until the limit is set."""

    stopped: bool = Field(True, description="The run has ended as requested.")
    failed: bool = Field(True, description="The run has ended with an error, or could not begin.")
    error: bool = Field(True, description="An error that does not end the run, as of one table of many.")
    error_budget: bool = Field(
        True, description="More dead letters than dead_letters.budget allows: the run has ended."
    )
    request_budget: bool = Field(True, description="A batch made more S3 requests than the block budget allows.")
    audit: bool = Field(True, description="The audit of a branch has failed, and the feed continues to land there.")
    schema_: bool = Field(True, alias="schema", description="The rows have another schema from now on.")
    paused: bool = Field(True, description="The feed was paused, or one of its sinks waits.")
    hangs: bool = Field(True, description="The driver's loop has not turned for a minute.")
    lag: LagBound | None = Field(None, description="The feed is too far behind.")
    no_data: Period | None = Field(None, description="No record has come for so long.")
    no_commit: Period | None = Field(None, description="No commit for so long, although records wait.")
    dead_letters: DeadLetterBound | None = Field(None, description="Too many dead letters.")


class Notify(Block):
    """Messages about the feed to people and programs. The driver sends them; no target can delay the feed."""

    targets: dict[str, NotifyTarget] = Field(min_length=1, description="The receivers, by names of your own.")
    when: When = Field(default_factory=When)
    cool_down: Duration = "10 minutes"
    """Time between two messages of the same kind. Events in between are counted, and the next message has the count."""
    most_per_hour: Count = Field(60, description="Messages to one target at most; the rest is counted.")
    link: Annotated[str, checked(_require_public_web_address)] | None = None
    """An address without secrets that every message links to. Default: public_url of the block dashboard."""

    def _contradictions(self) -> Iterator[ConfigProblem]:
        for name in self.targets:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name):
                yield ConfigProblem("a target's name has letters, digits, '_', '.' and '-'", key="targets")


def settings_of(config: PipelineBlocks) -> Notify | None:
    """Return the block ``notify``; unless it has a link, its messages link to the dashboard."""
    notify = config.block(Notify)
    if notify is None or notify.link is not None:
        return notify
    pages = [block.page_url for block in config.added_blocks.values()]
    return notify.model_copy(update={"link": next(filter(None, pages), None)})
