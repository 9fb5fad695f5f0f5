"""The patterns of secret names match the same names in Java, where Spark uses them, and in Python."""

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefeed.clients.spark.session import settings
from lakefeed.config.secrets import NAMES, is_secret, pattern

SECRET = [
    "spark.x.password",
    "PASSWORD",
    "passwd",
    "fs.s3a.secret.key",
    "sasl.jaas.config",
    "basic.auth.credentials",
    "basic.auth.credential",
    "Authorization",
    "keystore.key",
    "ssl.keystore_key",
    "token",
    "spark.sql.catalog.lake.token",
    "adls.sas-token.account",
    "fs.s3a.access.key",
    "accesskey",
    "header.X-Api-Key",
    "apiKey",
    "ssl.private_key",
    "fs.azure.account.key",
    "s3.sse.key",
    "sse-key",
    "basic.auth.user.info",
    "user_info",
    "ssl.key.passphrase",
]
PLAIN = [
    "spark.sql.shuffle.partitions",
    "token-exchange-enabled",
    "credentials-provider",
    "authorization.type",
    "s3.sse.keys",
    "keystore.key.type",
    "mytoken.x",
    "fs.s3a.endpoint",
    "",
    "sse.key\n",
    "tokéns",
]
KEYS = ["spark.sql.x[0]", "header.X", "spark.hadoop.fs.azure.a", "spark.hive.y", "a b|c*", "a\\b", "é.(x)", "$", "^x$"]
NEAR = ["spark.sql.x0", "sparkxsql.x[0]", "header.X2", "headerxX", "fs_azure_a", "a bbb", "a b", "é.x", "x"]


def test_java_and_python_treat_the_same_names_as_secret(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    java = jvm.java.util.regex.Pattern.compile(NAMES)
    for name in [*SECRET, *PLAIN]:
        assert java.matcher(name).find() is is_secret(name, "x"), repr(name)
    assert [is_secret(name, "x") for name in SECRET] == [True] * len(SECRET)
    assert [is_secret(name, "x") for name in PLAIN[:8]] == [False] * 8


def test_java_and_python_match_the_same_secret_keys_of_users(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    text = pattern(KEYS)
    java, python = jvm.java.util.regex.Pattern.compile(text), re.compile(text)
    names = [*SECRET, *PLAIN, *KEYS, *NEAR, *(f"spark.sql.catalog.lake.{key}" for key in [*KEYS, *NEAR])]
    for name in names:
        assert java.matcher(name).find() is (python.search(name) is not None), repr(name)
    assert [name for name in KEYS if python.search(name) is None] == []
    assert [name for name in NEAR if python.search(name) is not None] == []


@pytest.mark.parametrize("setting", ["spark.redaction.regex", "spark.sql.redaction.options.regex"])
def test_spark_redacts_settings_that_match_the_pattern(spark: SparkSession, setting: str) -> None:
    jvm: Any = spark._jvm
    expression = jvm.scala.util.matching.Regex(settings(secret_keys=KEYS)[setting], jvm.PythonUtils.toSeq([]))
    for name in [*SECRET, *KEYS, *PLAIN[:2], *NEAR]:
        pair = jvm.scala.Tuple2(name, "value")
        shown = jvm.org.apache.spark.util.Utils.redact(jvm.scala.Some(expression), jvm.PythonUtils.toSeq([pair]))
        hidden = shown.head()._2() != "value"
        expected = re.search(settings(secret_keys=KEYS)[setting], name) is not None
        assert hidden is expected, repr(name)
