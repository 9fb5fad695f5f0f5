"""No message about a pipeline file shows a secret that is in it."""

from __future__ import annotations

import pytest

from tests.support.pipeline_text import GOOD, TOPICS, Reader


class TestSecrets:
    SECRET = "hunter2hunter2"

    def test_a_secret_in_the_file_is_a_warning(self, reading: Reader) -> None:
        text = f"{GOOD}s3:\n  access_key: ${{THE_SECRET}}\n  secret_key: {self.SECRET}\n"
        config, found = reading(text)
        assert config is not None
        assert [(each.line, each.column, each.severity) for each in found] == [(15, 15, "warning")]
        assert "${AWS_SECRET_ACCESS_KEY}" in (found[0].hint or "")

    @pytest.mark.parametrize(
        "block",
        [
            "s3: {secret_key: hunter2hunter2}",
            "s3: {secret_key: [hunter2hunter2]}",
            "s3: {secret_key: {a: hunter2hunter2}}",
            "s3: {access_key: '${THE_SECRET}', region: 5}",
            "s3: hunter2hunter2",
            "s3: {session_token: hunter2hunter2, endpoint: 'hunter2hunter2'}",
            "s3: {endpoint: 'https://hunter2hunter2@host'}",
            "catalogs: {lake: {uri: 'jdbc:postgresql://h/d?password=hunter2hunter2'}}",
            "catalogs: {lake: {type: rest, uri: 'http://h', properties: {credential: hunter2hunter2}}}",
            "spark: {spark.hadoop.fs.s3a.secret.key: hunter2hunter2}",
        ],
    )
    def test_no_message_repeats_it(self, reading: Reader, block: str) -> None:
        _, found = reading(f"{GOOD}{block}\n")
        assert found
        # The one place where no secret is expected, so that it cannot be recognized as one.
        if block != "s3: hunter2hunter2":
            assert self.SECRET not in "\n".join(map(str, found))

    @pytest.mark.parametrize(
        "option",
        [
            "kafka.sasl.jaas.config: 'evil.Module required password=\"hunter2hunter2\";'",
            "kafka.sasl.jaas.config: '${THE_SECRET}'",
            "kafka.ssl.truststore.password: [hunter2hunter2]",
            "kafka.ssl.keystore.key: hunter2hunter2",
        ],
    )
    def test_nor_one_among_kafkas_settings(self, reading: Reader, option: str) -> None:
        _, found = reading(replace=(TOPICS, f"{TOPICS}    options:\n      {option}\n"))
        assert [each.line for each in found][-1] == 7
        assert self.SECRET not in "\n".join(map(str, found))


def test_names_that_only_sound_like_secrets(reading: Reader) -> None:
    properties = "{client.credentials-provider: a.B, token-exchange-enabled: false, oauth2-server-uri: 'http://h'}"
    _, found = reading(f"{GOOD}catalogs: {{lake: {{type: rest, uri: 'http://h', properties: {properties}}}}}\n")
    assert found == []
