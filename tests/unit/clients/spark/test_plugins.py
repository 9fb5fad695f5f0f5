"""The Spark plugins of a session."""

from lakefeed.clients.spark.session import settings, with_own

OWN = ["io.lakefeed.JvmPlugin", "io.lakefeed.metrics.FeedMetrics"]


def test_a_users_plugins_stand_behind_lakefeeds() -> None:
    requested = settings(master="spark://nowhere:7077")
    assert requested["spark.plugins"].split(",") == OWN
    whole = with_own(requested, {"spark.plugins": "org.example.Mine"})
    assert whole["spark.plugins"].split(",") == [*OWN, "org.example.Mine"]
