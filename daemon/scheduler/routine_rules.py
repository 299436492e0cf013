"""What any routine is checked against besides its own file: the config and the tools there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from daemon.definitions.config.config import Config
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.routines.routine import RoutineDefinition
from daemon.definitions.routines.rules import PATH_PLACEHOLDER, reference_checks
from daemon.errors import ToolFailed
from daemon.providers.budget import price_checks
from daemon.tools.registry import FunctionDefinition, FunctionRegistry


def routine_rules(
    config: Config,
    tools: Collection[str] | None = None,
    *,
    registries: Iterable[FunctionRegistry] = (),
) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the rules for routines beside `config`. Without `tools`, their names are not
    checked; arguments of gather steps are where one of `registries` has the tool.
    """
    return (
        *reference_checks(config.provider_names, tools, targets=config.target_names),
        *price_checks(config),
        *argument_checks(registries),
    )


def argument_checks(
    registries: Iterable[FunctionRegistry],
) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the check that the arguments of required gather steps fit the tools.

    The first of `registries` that has a tool counts. A step that is not required may fail, and one
    with the path of a file that is to land is not known yet.
    """
    registries = tuple(registries)

    def misfits(routine: RoutineDefinition) -> Iterator[Conflict]:
        for index, step in enumerate(routine.gather):
            tool = next(
                filter(None, (registry.get_function(step.tool) for registry in registries)), None
            )
            if tool is None or not step.required or PATH_PLACEHOLDER in step.args.values():
                continue
            try:
                tool.signature.check_arguments(step.args)
            except ToolFailed as error:
                problem = str(error).replace(", nothing was executed", "")
                yield Conflict(f"gather[{index}].args", problem, hint=_describe_parameters(tool))

    return (CrossFieldCheck(("gather",), misfits),)


def _describe_parameters(tool: FunctionDefinition) -> str:
    names = ", ".join(tool.parameters.get("properties", {}))
    return f"{tool.name} takes {names}" if names else f"{tool.name} takes no arguments"
