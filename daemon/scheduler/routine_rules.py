"""What any routine is checked against besides its own file: the config and the tools there are."""

from __future__ import annotations

from collections.abc import Collection

from daemon.definitions.config.config import Config
from daemon.definitions.reading import CrossFieldCheck
from daemon.definitions.routines.routine import RoutineDefinition
from daemon.definitions.routines.rules import reference_checks
from daemon.providers.budget import price_checks


def routine_rules(
    config: Config, tools: Collection[str] | None = None
) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the rules for routines beside `config`. Without `tools`, their names are not
    checked.
    """
    return (
        *reference_checks(config.provider_names, tools, targets=config.target_names),
        *price_checks(config),
    )
