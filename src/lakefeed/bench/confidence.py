"""Say how sure a measurement is: quantiles of Student's t."""

from __future__ import annotations

# Two-sided 95 %, for 1 to 30 degrees of freedom; beyond, the normal distribution's.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t95(degrees: int) -> float:
    """Return the quantile between whose negative and itself 95 % lie, for 1 or more degrees of freedom."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96
