import pytest

from lakefeed.config.problem import Problem, exit_status, raise_first_error
from lakefeed.errors import (
    AccessDenied,
    ConfigError,
    LakefeedError,
    ResourceMissing,
    Unreachable,
    UserError,
    WorldError,
)


def problem(error: type[LakefeedError], what: str = "w") -> Problem:
    return Problem.of(error(what, where="host:1", hint="h"), key="a.b")


def test_warnings_raise_nothing_and_leave_the_exit_status_at_0() -> None:
    raise_first_error([])
    raise_first_error([Problem(what="w", severity="warning")])
    assert exit_status([Problem(what="w", severity="warning")]) == 0


def test_one_problem_is_raised_with_its_class_and_parts() -> None:
    with pytest.raises(ResourceMissing) as caught:
        raise_first_error([problem(ResourceMissing)])
    assert (caught.value.what, caught.value.where, caught.value.hint) == ("w", "host:1", "h")


@pytest.mark.parametrize(
    ("classes", "raised", "status"),
    [
        ([Unreachable, Unreachable], Unreachable, 1),
        ([AccessDenied, AccessDenied], AccessDenied, 2),
        ([Unreachable, WorldError], WorldError, 1),
        ([Unreachable, ResourceMissing], UserError, 2),
        ([ConfigError, ResourceMissing], ConfigError, 2),
    ],
)
def test_several_problems_are_raised_as_one_error(
    classes: list[type[LakefeedError]], raised: type[LakefeedError], status: int
) -> None:
    found = [problem(each, f"what {number}") for number, each in enumerate(classes)]
    with pytest.raises(LakefeedError) as caught:
        raise_first_error(found)
    assert type(caught.value) is raised
    assert caught.value.exit_status == exit_status(found) == status
    assert all(each.what in str(caught.value) for each in found)
