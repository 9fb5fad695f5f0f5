"""Values and secrets of a pipeline file."""

from pathlib import Path

import pytest

from tests.support.pipeline_text import ENVIRONMENT, GOOD, REGISTRY, TOPICS, Acceptor, Reader


class TestValues:
    def test_a_variable_may_become_a_number(self, accepted: Acceptor) -> None:
        bound = TOPICS, f"{TOPICS}    max_records_per_batch: ${{N}}\n"
        config = accepted(replace=bound, environment={**ENVIRONMENT, "N": "1_000"})
        assert config.kafka.max_records_per_batch == 1000

    def test_a_variable_stays_text_in_a_setting_for_text(self, accepted: Acceptor) -> None:
        login = "http://127.0.0.1:1", "{url: 'https://h', username: u, password: '${PW}'}"
        config = accepted(replace=login, environment={**ENVIRONMENT, "PW": "0123"})
        assert config.decode.avro.registry.password.get_secret_value() == "0123"

    def test_a_variable_cannot_add_keys(self, accepted: Acceptor) -> None:
        subject = REGISTRY, f"{REGISTRY}    subject: ${{SUBJECT}}\n"
        config = accepted(replace=subject, environment={**ENVIRONMENT, "SUBJECT": "a\n    schema_file: evil"})
        assert config.decode.avro.schema_file is None

    def test_an_empty_default_leaves_the_setting_out(self, accepted: Acceptor) -> None:
        assert accepted(f"{GOOD}s3:\n  endpoint: ${{NO_ENDPOINT:-}}\n").s3.endpoint is None

    @pytest.mark.parametrize("written", ["${EMPTY}", "'${EMPTY}'", '"${EMPTY}${EMPTY}"', "${BLANK}"])
    @pytest.mark.parametrize(
        "setting", ["s3:\n  endpoint: ", "transform:\n  sql: ", "budget:\n  s3_requests_per_batch: "]
    )
    def test_an_empty_variable_without_a_default_is_a_mistake(
        self, reading: Reader, setting: str, written: str
    ) -> None:
        config, found = reading(f"{GOOD}{setting}{written}\n", environment={**ENVIRONMENT, "EMPTY": "", "BLANK": "  "})
        assert config is None
        name = "BLANK" if "BLANK" in written else "EMPTY"
        assert [each.what for each in found] == [f"the environment variable {name} is empty"]
        assert f"${{{name}:-}}" in (found[0].hint or "")

    def test_table_properties_stay_text(self, accepted: Acceptor) -> None:
        properties = "    properties: {a: 134217728, b: true, c: 0.10, d: x}\n"
        config = accepted(GOOD.replace("checkpoint: ", properties + "checkpoint: "))
        assert config.sink.iceberg.properties == {"a": "134217728", "b": "true", "c": "0.10", "d": "x"}

    def test_a_key_that_yaml_reads_as_a_boolean_stays_text(self, reading: Reader) -> None:
        _, found = reading(replace=("name: taxi", "name: taxi\non: 1"))
        assert found[0].what == "unknown option 'on'"

    @pytest.mark.parametrize("raw", ["decode: raw", "decode:\n  raw:", "decode: {raw: {}}"])
    def test_a_block_without_settings_has_short_forms(self, accepted: Acceptor, raw: str) -> None:
        assert accepted(replace=(f"decode:\n  avro:\n{REGISTRY.rstrip()}", raw)).decode.kind == "raw"

    def test_relative_paths_are_relative_to_the_folder_of_the_pipeline_file(
        self, accepted: Acceptor, tmp_path: Path
    ) -> None:
        (tmp_path / "s.avsc").write_text("{}")
        config = accepted(replace=(REGISTRY, "    schema_file: s.avsc\n"))
        assert config.decode.avro.schema_file == tmp_path / "s.avsc"


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
    def test_no_message_repeats_a_secret(self, reading: Reader, block: str) -> None:
        _, found = reading(f"{GOOD}{block}\n")
        assert found
        # The setting s3 expects a block instead of a text, so the loader cannot know that the text is a secret.
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
    def test_no_message_repeats_a_secret_of_kafkas_options(self, reading: Reader, option: str) -> None:
        _, found = reading(replace=(TOPICS, f"{TOPICS}    options:\n      {option}\n"))
        assert [each.line for each in found][-1] == 7
        assert self.SECRET not in "\n".join(map(str, found))


def test_a_public_property_with_a_secrets_word_in_its_name_is_accepted(accepted: Acceptor) -> None:
    properties = "{client.credentials-provider: a.B, token-exchange-enabled: false, oauth2-server-uri: 'http://h'}"
    accepted(f"{GOOD}catalogs: {{lake: {{type: rest, uri: 'http://h', properties: {properties}}}}}\n")
