"""What any routine is checked against besides its own file: the config and the tools there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import KINDS_WITH_MODEL, PROVIDER_KINDS, ProviderConfig
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.routines.checks import PATH_PLACEHOLDER, reference_checks
from daemon.definitions.routines.folder import calendar_checks
from daemon.definitions.routines.routine import RoutineDefinition
from daemon.definitions.words import did_you_mean
from daemon.errors import ConfigError, ToolFailed
from daemon.providers.budget import price_checks
from daemon.providers.capabilities import capabilities_of
from daemon.providers.programs import check_model
from daemon.runs.report_schema import ReportSchemaError, load_schema
from daemon.tools.registry import FunctionDefinition, FunctionRegistry


def routine_checks(
    config: Config,
    tools: Collection[str] | None = None,
    *,
    registries: Iterable[FunctionRegistry] = (),
    workspace: Path | None = None,
) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the checks of routines against `config`. Without `tools`, their names are not
    checked; arguments of gather steps are where one of `registries` has the tool, and the schemas
    of reports and the calendars to skip are read where the `workspace` is given.
    """
    return (
        *reference_checks(config.provider_names, tools, targets=config.target_names),
        *price_checks(config),
        *provider_checks(config),
        *sender_checks(config),
        *judge_checks(config),
        *(schema_checks(workspace) if workspace else ()),
        *(calendar_checks(workspace) if workspace else ()),
        *argument_checks(registries),
    )


def provider_checks(config: Config) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the checks that the providers of a routine can do what it asks of them.

    A program as a model (kind command) is offered no tools, and takes another model only where its
    command says where; an effort has to be one of the model's levels. A class of the user's own
    may do anything.
    """

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        run = routine.run
        if not run.asks_model:
            return
        primary = run.provider or config.provider
        needs_tools = run.mode == "agent" and (run.tools or run.skills or routine.dedupe)
        for index, name in enumerate((primary, *run.fallback)):
            if name not in config.provider_names:
                continue
            settings = config.provider_config(name)
            if settings.kind == "command" and needs_tools:
                key = f"run.fallback[{index - 1}]" if index else "run.provider"
                yield Conflict(
                    key,
                    "is a program (kind command), which is offered no tools, and this routine "
                    "needs some",
                    name,
                    "name a provider of another kind, or collect with [[gather]] in mode "
                    '"collect-then-summarise"',
                )
        if primary not in config.provider_names:
            return
        settings = config.provider_config(primary)
        model = run.model if settings.kind == "command" else None
        if model is not None and (problem := check_model(settings.command, model)):
            hint = f"see providers.{primary}.command in config.toml"
            yield Conflict("run.model", problem, model, hint)
        if run.effort is not None and settings.kind in PROVIDER_KINDS:
            yield from _effort_conflicts(run.effort, primary, settings, run.model)

    keys = ("run.mode", "run.provider", "run.fallback", "run.model", "run.tools", "run.effort")
    return (CrossFieldCheck(keys, check),)


def judge_checks(config: Config) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the check that the judge of a report is a model, and one that its provider has."""

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        judge = routine.check.judge if routine.check else None
        if judge is None:
            return
        name, model = judge.provider_of(routine.run, config.provider)
        if name not in config.provider_names:
            return
        settings = config.provider_config(name)
        if settings.kind == "offline":
            yield Conflict(
                "check.judge.provider",
                "is of kind offline, which asks no model",
                name,
                "name a provider with a model",
            )
        elif (
            settings.kind == "command"
            and model
            and (problem := check_model(settings.command, model))
        ):
            hint = f"see providers.{name}.command in config.toml"
            yield Conflict("check.judge.model", problem, model, hint)

    keys = ("check.judge", "run.provider", "run.model")
    return (CrossFieldCheck(keys, check),)


def schema_checks(workspace: Path) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the check that the schema of a report is one."""

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        file = routine.check.schema_file if routine.check else None
        if file is None:
            return
        try:
            load_schema(workspace, file)
        except ReportSchemaError as error:
            yield Conflict(
                "check.schema",
                str(error),
                file,
                f"it is looked for in {workspace}; once it is mended: agentctl reload",
            )

    return (CrossFieldCheck(("check.schema",), check),)


def _effort_conflicts(
    effort: str, name: str, settings: ProviderConfig, own_model: str | None
) -> Iterator[Conflict]:
    if settings.kind not in KINDS_WITH_MODEL:
        hint = "take it out"
        if settings.kind == "command":
            hint = f"write it into the words of providers.{name}.command"
        yield Conflict("run.effort", f"kind {settings.kind} has none", effort, hint)
        return
    model = own_model or settings.model or ""
    try:
        levels = capabilities_of(model, settings.capabilities, provider=name).effort
    except ConfigError:
        return  # the fault is one of config.toml, which its own check names
    if effort not in levels:
        problem = f"is none of the levels of {model}: {', '.join(levels)}"
        yield Conflict(
            "run.effort",
            problem if levels else f"no levels of effort are known of {model}",
            effort,
            f'if it has more, name them: providers.{name}.capabilities.effort = ["{effort}"]',
        )


def sender_checks(config: Config) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the check that the sender of a routine's webhooks is in config.toml."""

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        for key, trigger in routine.keyed_triggers:
            name = trigger.sender
            if name is not None and name not in config.hooks.senders:
                hint = did_you_mean(name, config.hooks.senders) or f"add [hooks.senders.{name}]"
                yield Conflict(f"{key}.sender", "no such sender in config.toml", name, hint)

    return (CrossFieldCheck(("trigger.sender",), check),)


def argument_checks(
    registries: Iterable[FunctionRegistry],
) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the check that the arguments of required gather steps fit the tools.

    The first of `registries` that has a tool counts. A step that is not required may fail, and one
    with the path of a file that is to land is not known yet.
    """
    registries = tuple(registries)

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
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

    return (CrossFieldCheck(("gather",), check),)


def _describe_parameters(tool: FunctionDefinition) -> str:
    names = ", ".join(tool.parameters.get("properties", {}))
    return f"{tool.name} takes {names}" if names else f"{tool.name} takes no arguments"
