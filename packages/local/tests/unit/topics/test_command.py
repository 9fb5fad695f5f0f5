"""Draw a topic's profile on a terminal."""

from lakefeed_local.topics.command import narrowed


def test_a_narrow_chart_shows_average_rates() -> None:
    rates = [float(at) for at in range(48)]
    assert narrowed(rates, 48) == rates
    narrow = narrowed(rates, 26)
    assert len(narrow) == 24
    assert narrow[:2] == [0.5, 2.5]
    assert len(narrowed(rates, 10)) == 10
    assert narrowed(rates, 10)[-1] == 46.0  # The last average has fewer rates than the other averages.
