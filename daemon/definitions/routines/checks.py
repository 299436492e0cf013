"""Checks between the keys of a routine, and of the names that it refers to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path

from daemon.definitions.config.tables import BUILT_IN_TARGETS
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.routines.routine import TRIGGER_KEYS, RoutineDefinition
from daemon.definitions.values import format_duration
from daemon.definitions.words import did_you_mean
from daemon.system.patterns import Patterns

# In the arguments of a gather step: replaced by the path of each file that started the run.
PATH_PLACEHOLDER = "{path}"


def _one_kind_each(routine: RoutineDefinition) -> Iterator[Conflict]:
    for key, trigger in routine.keyed_triggers:
        kinds = [kind for kind in TRIGGER_KEYS if getattr(trigger, kind)]
        if len(kinds) > 1:
            yield Conflict(
                key,
                f"{' and '.join(kinds)} exclude one another",
                hint="give each a [[trigger]] of its own",
            )
        elif not trigger.is_automatic and (trigger.model_fields_set or len(routine.triggers) > 1):
            hint = (
                "add cron, every, at, watch, webhook, after, pace or on_start; without [trigger] "
                "it runs by hand only"
            )
            yield Conflict(key, "nothing here starts the routine", hint=hint)


def _trigger_keys_fit(routine: RoutineDefinition) -> Iterator[Conflict]:
    for key, trigger in routine.keyed_triggers:
        keys = trigger.model_fields_set
        if "settle" in keys and not trigger.watch:
            yield Conflict(
                f"{key}.settle",
                "belongs to watch, which is not there",
                hint='like watch = ["inbox/*.csv"]',
            )
        if trigger.sender is not None and not trigger.webhook:
            yield Conflict(
                f"{key}.sender",
                "belongs to webhook, which is not there",
                hint="add webhook = true",
            )
        if "on" in keys and not trigger.after:
            yield Conflict(
                f"{key}.on", "belongs to after, which is not there", hint='like after = ["backup"]'
            )
        if trigger.pace and "spread" in keys:
            yield Conflict(
                f"{key}.spread", "is for cron, every and at", hint="take it out: runs say when"
            )
        if trigger.watch or trigger.webhook or trigger.after:
            for name in sorted(keys & {"catch_up", "spread"}):
                yield Conflict(
                    f"{key}.{name}",
                    "is for cron, every and at: an event has no other moment",
                    hint="take it out",
                )


def _triggers_agree(routine: RoutineDefinition) -> Iterator[Conflict]:
    """Find what several triggers of a routine cannot each have for itself."""
    first_key, first = routine.keyed_triggers[0]
    webhook_key = clock_key = pace_key = None
    spread = timedelta(0)
    for key, trigger in routine.keyed_triggers:
        if trigger.webhook and webhook_key:
            problem = f"{webhook_key} has it already: a routine has one webhook, of its own name"
            yield Conflict(f"{key}.webhook", problem, hint="take one of them out")
        elif trigger.webhook:
            webhook_key = key
        if trigger.pace and pace_key:
            problem = f"{pace_key} has one already: a run says once when to come again"
            yield Conflict(f"{key}.pace", problem, trigger.pace, "take one of them out")
        elif trigger.pace:
            pace_key = key
        if trigger.machines != first.machines:
            problem = f"differs from {first_key}, but says where the whole routine runs"
            yield Conflict(
                f"{key}.machines", problem, list(trigger.machines), "write the same in each"
            )
        if not trigger.has_clock:
            continue
        if clock_key and trigger.spread != spread:
            yield Conflict(
                f"{key}.spread",
                f"differs from {clock_key}, but runs start in the order of their slots",
                format_duration(trigger.spread),
                "write the same in each that has cron, every or at",
            )
        elif not clock_key:
            clock_key, spread = key, trigger.spread


def _pace_is_for_agents(routine: RoutineDefinition) -> Iterator[Conflict]:
    for key, trigger in routine.keyed_triggers:
        if trigger.pace and routine.run.mode != "agent":
            yield Conflict(
                f"{key}.pace",
                "a run says with the tool finish when to come again, and this mode offers no tools",
                trigger.pace,
                'set mode = "agent" in [run], or write every = "1h" instead',
            )


def _path_arguments_fit(routine: RoutineDefinition) -> Iterator[Conflict]:
    watches_files = any(trigger.watch for trigger in routine.triggers)
    for index, gather in enumerate(routine.gather):
        for key, value in gather.args.items():
            if not isinstance(value, str) or PATH_PLACEHOLDER not in value:
                continue
            if value != PATH_PLACEHOLDER and watches_files:
                hint = (
                    f'write {key} = "{PATH_PLACEHOLDER}", with a tool that takes a path, such as '
                    "file_read"
                )
                yield Conflict(
                    f"gather[{index}].args.{key}",
                    f"{PATH_PLACEHOLDER} must stand alone",
                    value,
                    hint,
                )
            elif value == PATH_PLACEHOLDER and not watches_files:
                hint = 'add watch to [trigger], like watch = ["inbox/*.csv"]'
                yield Conflict(
                    f"gather[{index}].args.{key}", "without watch no file lands", value, hint
                )


def _media_path_fits(routine: RoutineDefinition) -> Iterator[Conflict]:
    watches_files = any(trigger.watch for trigger in routine.triggers)
    if PATH_PLACEHOLDER in routine.run.media and not watches_files:
        hint = 'add watch to [trigger], like watch = ["inbox/*.png"]'
        yield Conflict("run.media", "without watch no file lands", PATH_PLACEHOLDER, hint)


def _reports_are_not_watched(routine: RoutineDefinition) -> Iterator[Conflict]:
    globs = [glob for trigger in routine.triggers for glob in trigger.watch]
    if not globs:
        return
    patterns = Patterns(tuple(globs))
    for index, target in enumerate(routine.deliver):
        if target.path and patterns.matches(_FIELD.sub("x", target.path)):
            hint = "write it to another folder"
            yield Conflict(
                f"deliver[{index}].path",
                "is watched: each report would start the next run",
                target.path,
                hint,
            )


def _has_a_task(routine: RoutineDefinition) -> Iterator[Conflict]:
    if routine.run.mode == "script":
        if not routine.gather:
            yield Conflict(
                "gather",
                "is missing, and a script delivers what is gathered",
                hint='like name = "disk", tool = "shell", args = { command = "df -h" }',
            )
    elif not routine.run.prompt.strip() and not routine.gather:
        yield Conflict("run.prompt", "is missing, and nothing is gathered", hint="say what to do")
    elif routine.run.mode == "agent" and not routine.run.prompt.strip():
        yield Conflict("run.prompt", "is missing; an agent needs its task")


# Of [run], what means something where no model is asked.
_SCRIPT_KEYS = frozenset({"mode", "timeout", "overlap", "silent_token", "rehearse_first", "retry"})


def _tools_fit_the_mode(routine: RoutineDefinition) -> Iterator[Conflict]:
    run = routine.run
    if run.mode == "collect-then-summarise" and run.tools:
        hint = 'set mode = "agent", or collect with [[gather]]'
        yield Conflict("run.tools", "this mode asks the model once, without tools", run.tools, hint)
    if run.mode == "collect-then-summarise" and run.skills:
        skills = run.skills if isinstance(run.skills, str) else list(run.skills)
        yield Conflict("run.skills", "are for an agent", skills, 'set mode = "agent"')
    if run.mode == "script":
        for key in sorted(run.model_fields_set - _SCRIPT_KEYS):
            hint = 'take it out, or set another mode than "script"'
            yield Conflict(f"run.{key}", "is for a model, and a script asks none", hint=hint)
    elif run.mode == "agent":
        for tool in run.required_tools:
            if tool not in run.tools:
                yield Conflict(
                    "run.required_tools", "is not among tools", tool, did_you_mean(tool, run.tools)
                )
    elif run.required_tools and not run.tools:
        yield Conflict(
            "run.required_tools",
            "this mode offers no tools",
            run.required_tools,
            'set mode = "agent"',
        )


def _items_are_for_agents(routine: RoutineDefinition) -> Iterator[Conflict]:
    if routine.run.mode == "script":
        if routine.dedupe is not None and routine.dedupe.key != "title":
            yield Conflict(
                "dedupe.key",
                "is for an agent: of a script each line is an item",
                routine.dedupe.key,
                'write key = "title", which is the line',
            )
        return
    if routine.dedupe is not None and routine.run.mode != "agent":
        yield Conflict(
            "dedupe",
            "is for an agent, which reports items by a tool",
            hint='set mode = "agent" in [run]',
        )
    if routine.dedupe is None and "report_items" in routine.run.tools:
        yield Conflict(
            "run.tools",
            "report_items belongs to [dedupe], which is not there",
            hint='like key = "url"',
        )


def _gather_names_are_unique(routine: RoutineDefinition) -> Iterator[Conflict]:
    names: set[str] = set()
    for index, gather in enumerate(routine.gather):
        if gather.name in names:
            yield Conflict(
                f"gather[{index}].name", "an earlier [[gather]] has this name", gather.name
            )
        names.add(gather.name)


def _gate_facts_exist(routine: RoutineDefinition) -> Iterator[Conflict]:
    if not routine.gate.changed:
        return
    names = {gather.name for gather in routine.gather}
    for index, fact in enumerate(routine.gate.changed):
        if (name := fact.partition(".")[0]) not in names:
            hint = did_you_mean(name, names) or "add the [[gather]] it compares"
            yield Conflict(f"gate.changed[{index}]", "no [[gather]] has this name", fact, hint)


def _moments_have_slots(routine: RoutineDefinition) -> Iterator[Conflict]:
    if routine.gate.moments is None:
        return
    if not any(trigger.cron or trigger.every for trigger in routine.triggers):
        hint = 'add cron or every to [trigger], such as every = "30m"'
        yield Conflict(
            "gate.moments", "are drawn from the slots of a schedule, and there is none", hint=hint
        )
    hours = {
        (trigger.active_hours, trigger.timezone)
        for trigger in routine.triggers
        if trigger.has_clock
    }
    if len(hours) > 1:
        yield Conflict(
            "gate.moments",
            "are drawn from the active hours of a day, and these differ from trigger to trigger",
            hint="give all with cron, every or at the same active_hours and timezone",
        )
    if not routine.deliver:
        yield Conflict(
            "gate.moments", "count what was delivered, and nothing is", hint="add a [[deliver]]"
        )


def _gate_names_a_program(routine: RoutineDefinition) -> Iterator[Conflict]:
    if routine.gate.command and not routine.gate.command[0].strip():
        hint = 'like command = ["test", "-s", "inbox/todo"]'
        yield Conflict("gate.command[0]", "names no program", routine.gate.command[0], hint)


def _check_fits(routine: RoutineDefinition) -> Iterator[Conflict]:
    check = routine.check
    if check is None:
        return
    if not (check.contains or check.schema_file or check.command or check.judge):
        hint = 'like contains = ["## Summary"], or schema, command or [check.judge]'
        yield Conflict("check", "checks nothing", hint=hint)
    if check.repair and routine.run.mode == "script":
        yield Conflict(
            "check.repair",
            "is for the report of a model, and a script asks none",
            check.repair,
            "take it out: a report that fails its check makes the run a failure",
        )
    if check.judge is not None and not check.judge.rubric.strip():
        hint = 'like rubric = "Names each host, and for each what to do."'
        yield Conflict(
            "check.judge.rubric", "is missing: say what the report must be like", hint=hint
        )
    if check.schema_file is not None and (
        check.schema_file.startswith(("/", "~")) or ".." in Path(check.schema_file).parts
    ):
        yield Conflict(
            "check.schema",
            "leaves the workspace",
            check.schema_file,
            'give a path relative to it, like "report.schema.json"',
        )
    if check.command and not check.command[0].strip():
        hint = 'like command = ["test", "-s", "out/report.csv"]'
        yield Conflict("check.command[0]", "names no program", check.command[0], hint)


_FIELD = re.compile(r"\{([^{}]*)\}")


def _deliveries_are_valid(routine: RoutineDefinition) -> Iterator[Conflict]:
    for index, target in enumerate(routine.deliver):
        key = f"deliver[{index}]"
        if target.to in ("log", "desktop") and target.path is not None:
            yield Conflict(f"{key}.path", f'"{target.to}" takes no path', target.path)
        elif target.to == "file" and target.path is None:
            hint = 'like path = "reports/{routine}/{slot:%Y-%m-%d}.md"'
            yield Conflict(f"{key}.path", "is missing", hint=hint)
        elif target.path is not None and (fault := find_path_fault(target.path)):
            yield Conflict(f"{key}.path", fault[0], target.path, fault[1])


def find_path_fault(path: str) -> tuple[str, str] | None:
    """Return what is wrong with the path of a report, and a hint; None if nothing is."""
    for name in _FIELD.findall(path):
        if name not in ("routine", "run", "slot") and not name.startswith("slot:%"):
            return f"unknown field {{{name}}}", "known: {routine} {run} {slot:%Y-%m-%d}"
    if set(_FIELD.sub("", path)) & set("{}"):
        return "a { or } stands alone", "fields look like {routine}"
    if path.startswith(("/", "~")) or ".." in Path(path).parts:
        return "leaves the workspace", "reports are written beneath it: give a relative path"
    if path.endswith("/"):
        return "names a folder", "add a file name"
    return None


ROUTINE_CHECKS: tuple[CrossFieldCheck[RoutineDefinition], ...] = (
    CrossFieldCheck(
        tuple(f"trigger.{kind}" for kind in (*TRIGGER_KEYS, "on_start")), _one_kind_each
    ),
    CrossFieldCheck(
        ("trigger.watch", "trigger.webhook", "trigger.sender", "trigger.after"), _trigger_keys_fit
    ),
    CrossFieldCheck(
        (
            "trigger.cron",
            "trigger.every",
            "trigger.at",
            "trigger.webhook",
            "trigger.pace",
            "trigger.machines",
            "trigger.spread",
        ),
        _triggers_agree,
    ),
    CrossFieldCheck(("trigger.pace", "run.mode"), _pace_is_for_agents),
    CrossFieldCheck(("gather.args", "trigger.watch"), _path_arguments_fit),
    CrossFieldCheck(("run.media", "trigger.watch"), _media_path_fits),
    CrossFieldCheck(("deliver.path", "trigger.watch"), _reports_are_not_watched),
    CrossFieldCheck(("run.prompt", "run.mode", "gather"), _has_a_task),
    CrossFieldCheck(("run.mode", "run.tools", "run.required_tools"), _tools_fit_the_mode),
    CrossFieldCheck(("dedupe", "dedupe.key", "run.mode", "run.tools"), _items_are_for_agents),
    CrossFieldCheck(("gather.name",), _gather_names_are_unique),
    CrossFieldCheck(("gate.changed", "gather.name"), _gate_facts_exist),
    CrossFieldCheck(
        (
            "gate.moments",
            "trigger.cron",
            "trigger.every",
            "trigger.active_hours",
            "trigger.timezone",
            "deliver",
        ),
        _moments_have_slots,
    ),
    CrossFieldCheck(("gate.command",), _gate_names_a_program),
    CrossFieldCheck(
        (
            "run.mode",
            "check.contains",
            "check.schema",
            "check.command",
            "check.judge",
            "check.judge.rubric",
        ),
        _check_fits,
    ),
    CrossFieldCheck(("deliver.to", "deliver.path"), _deliveries_are_valid),
)


def _has_no_origin(routine: RoutineDefinition) -> Iterator[Conflict]:
    if routine.origin is not None:
        yield Conflict(
            "origin", "is of routines that agents make", hint="take it out: this file is yours"
        )


# Triggers that are no schedule.
_EVENT_KEYS = ("watch", "webhook", "after", "on_start")


def _is_fit_for_an_agent(routine: RoutineDefinition) -> Iterator[Conflict]:
    if routine.origin is None:
        yield Conflict(
            "origin",
            "is missing: only what agents made lies in this folder",
            hint="move it to your own",
        )
    for place, trigger in routine.keyed_triggers:
        for key in _EVENT_KEYS:
            if getattr(trigger, key):
                yield Conflict(
                    f"{place}.{key}", "an agent gives its routines a schedule and nothing else"
                )
    for key in ("gather", "ping", "check"):
        if getattr(routine, key):
            yield Conflict(key, "is not for a routine that an agent made")
    for index, tool in enumerate(routine.run.tools):
        if tool in ("routine", "config") or set(tool) & set("*?["):
            yield Conflict(f"run.tools[{index}]", "is not for a routine that an agent made", tool)


PEOPLE_CHECKS: tuple[CrossFieldCheck[RoutineDefinition], ...] = (
    CrossFieldCheck(("origin",), _has_no_origin),
)
AGENT_CHECKS: tuple[CrossFieldCheck[RoutineDefinition], ...] = (
    CrossFieldCheck(("origin", "trigger", "gather", "check", "run.tools"), _is_fit_for_an_agent),
)


def reference_checks(
    providers: Collection[str] | None,
    tools: Collection[str] | None = None,
    *,
    targets: Collection[str] | None = BUILT_IN_TARGETS,
) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return checks for `load_folder`: the providers, tools and targets that a routine names exist.

    Patterns of tools may match none. What is None is not checked.
    """
    checks: tuple[CrossFieldCheck[RoutineDefinition], ...] = ()
    if providers is not None:
        checks += (
            CrossFieldCheck(
                ("run.provider", "run.fallback", "check.judge.provider"),
                lambda routine: _unknown_providers(routine, providers),
            ),
        )
    if targets is not None:
        checks += (
            CrossFieldCheck(("deliver.to",), lambda routine: _unknown_targets(routine, targets)),
        )
    if tools:
        checks += (
            CrossFieldCheck(
                ("gather.tool", "run.tools"), lambda routine: _unknown_tools(routine, tools)
            ),
        )
    return checks


def _unknown_providers(
    routine: RoutineDefinition, providers: Collection[str]
) -> Iterator[Conflict]:
    run, judge = routine.run, routine.check.judge if routine.check else None
    for key, name in (
        ("run.provider", run.provider),
        *((f"run.fallback[{index}]", name) for index, name in enumerate(run.fallback)),
        ("check.judge.provider", judge.provider if judge else None),
    ):
        if name is not None and name not in providers:
            hint = did_you_mean(name, providers)
            yield Conflict(key, "no such provider in config.toml", name, hint)


def _unknown_targets(routine: RoutineDefinition, targets: Collection[str]) -> Iterator[Conflict]:
    if routine.ping is not None and routine.ping not in targets:
        hint = (
            did_you_mean(routine.ping, targets)
            or f'add [targets.{routine.ping}] with kind = "ping"'
        )
        yield Conflict("ping", "no such target in config.toml", routine.ping, hint)
    for index, delivery in enumerate(routine.deliver):
        if delivery.to not in targets:
            hint = (
                did_you_mean(delivery.to, targets) or f"add [targets.{delivery.to}] to config.toml"
            )
            yield Conflict(
                f"deliver[{index}].to", "no such target in config.toml", delivery.to, hint
            )


def _unknown_tools(routine: RoutineDefinition, tools: Collection[str]) -> Iterator[Conflict]:
    references = [
        (f"gather[{index}].tool", gather.tool) for index, gather in enumerate(routine.gather)
    ]
    references += [
        (f"run.tools[{index}]", tool)
        for index, tool in enumerate(routine.run.tools)
        if not set(tool) & set("*?[") and "__" not in tool
    ]
    for key, tool in references:
        if tool not in tools:
            yield Conflict(key, "no such tool", tool, did_you_mean(tool, tools))
