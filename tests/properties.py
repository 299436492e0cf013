"""Settings of property tests: how many examples each gets, and which combinations of values.

A plain `pytest` runs the Hypothesis profile `quick`, which tries a fifth of each property's
examples, and of combinations of values as few as hold each; `pytest --hypothesis-profile
full` tries all of them, as `.ci/run` does. The profiles are registered in conftest.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FULL_EXAMPLES = 100
"""What the profile `full` gives a property that names no number."""
QUICK_EXAMPLES = 20
FEWEST = 10


def quick_share() -> float:
    """Return which share of the examples is tried: 1.0 in the profile `full`."""
    return settings.default.max_examples / FULL_EXAMPLES


def combine(*values: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return each combination of one from each collection in the profile `full`, and in `quick` as
    few as hold each value. Of a mapping, its keys.
    """
    if quick_share() >= 1:
        return list(itertools.product(*values))
    columns = [list(column) for column in values]
    return [
        tuple(column[row % len(column)] for column in columns)
        for row in range(max(map(len, columns)))
    ]


def combinations_of(**values: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with combinations of these values, by the names of its parameters; see
    `combine`.
    """
    return pytest.mark.parametrize(tuple(values), combine(*values.values()))


def scaled_settings(
    max_examples: int = FULL_EXAMPLES,
    *,
    fewest: int = FEWEST,
    steps: int = settings.default.stateful_step_count,
    suppress: Collection[HealthCheck] = (),
) -> settings:
    """Return settings with `max_examples` in the profile `full`, and fewer in `quick`.

    The examples are the same in each session. `fewest`: how many `quick` tries at least. `steps`:
    the most steps of one example of a state machine. `suppress` adds to the health checks that the
    profile leaves out.
    """
    examples = int(max_examples * quick_share())
    return settings(
        max_examples=min(max_examples, max(fewest, examples)),
        deadline=None,
        derandomize=True,
        stateful_step_count=steps,
        suppress_health_check=[*settings.default.suppress_health_check, *suppress],
    )
