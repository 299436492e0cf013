"""Settings of property tests: how many examples each gets.

A plain `pytest` runs the Hypothesis profile `quick`, which tries a fifth of each property's
examples; `pytest --hypothesis-profile full` tries all of them, as `.ci/run` does. The profiles are
registered in conftest.py.
"""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import HealthCheck, settings

FULL_EXAMPLES = 100
"""What the profile `full` gives a property that names no number."""
QUICK_EXAMPLES = 20
FEWEST = 10


def quick_share() -> float:
    """Return which share of the examples is tried: 1.0 in the profile `full`."""
    return settings.default.max_examples / FULL_EXAMPLES


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
    scaled = int(max_examples * quick_share())
    return settings(
        max_examples=min(max_examples, max(fewest, scaled)),
        deadline=None,
        derandomize=True,
        stateful_step_count=steps,
        suppress_health_check=[*settings.default.suppress_health_check, *suppress],
    )
