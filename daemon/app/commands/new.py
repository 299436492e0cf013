"""`agentd new`: writes a routine file, from a recipe or from a task and a schedule in plain words.

The text is composed first and read as the daemon would read it; a file is written only without
faults, and never in place of another one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import tomli_w

from daemon.app.commands.pages import (
    find_missing_rule,
    find_unread_urls,
    is_url,
    name_pages,
)
from daemon.app.commands.recipes import find_recipe, needed_lines
from daemon.app.commands.validate import TOOLS, policy_faults, policy_notes
from daemon.app.policy import load_policy, with_folders_in_use
from daemon.definitions.config.config import Config
from daemon.definitions.routines.folder import AGENT_FOLDER, load_folder, routine_of, write_new
from daemon.definitions.routines.routine import Routine
from daemon.definitions.routines.source import check_source, path_of_new
from daemon.definitions.schedule import Schedule
from daemon.definitions.schedule_text import Trigger, UnclearScheduleError, parse_schedule_text
from daemon.definitions.words import did_you_mean, display
from daemon.delivery.channels.file import fill_path
from daemon.errors import ConfigError, Refused, UnclearArgument
from daemon.models import Report, Status
from daemon.policy.policy import Policy
from daemon.runs.approvals.expected import describe_approvals
from daemon.scheduler.routine_checks import routine_checks
from daemon.scheduler.routine_times import schedule_of
from daemon.system.clock import format_date_time, host_zone
from daemon.tools import user_tools

FIRES_SHOWN = 3
NOT_WRITTEN_YET = """
This routine is not written yet. Say so in one sentence, and that its prompt stands in {file}.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class FactTemplate:
    """A fact that a new routine may gather before the model is asked."""

    table: str
    """The table [[gather]], as it is written into the file."""
    prompt_pattern: str = ""
    """A regular expression: a prompt in which it finds something asks for the fact."""


FACT_TEMPLATES = {
    "machine": FactTemplate(
        table="""\
[[gather]]
name = "machine"
tool = "sysinfo"
args = { parts = ["host", "load", "memory", "disks", "units", "errors", "updates"] }
""",
        prompt_pattern=r"\b(?:machines?|computer|laptop|server|host|disks?|cpu|ram|swap|uptime|reboots?"
        r"|updates?|systemd|journal)\b|机器|电脑|服务器|主机|磁盘|系统",
    ),
    "git": FactTemplate(
        table="""\
[[gather]]
name = "repositories"
tool = "git"
args = { command = "log --all --since=24.hours --format='%h %an: %s'", repository = "*" }
required = false
""",
        prompt_pattern=r"\b(?:git|commit(?:s|ted)?|repositor(?:y|ies)|repos?)\b|提交|仓库",
    ),
    "files": FactTemplate(
        table="""\
[[gather]]
name = "content"
tool = "file_read"
args = { path = "{path}" }
required = false
""",
    ),
}
"""By the name that --look takes, besides the URLs of pages. `files` is gathered for a trigger
`watch`, and for no prompt.
"""
_TABLE = re.compile(r"^(?=\[)", re.MULTILINE)
_PROMPT = re.compile(r'^prompt = (?:""".*?"""|"(?:[^"\\\n]|\\.)*")', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRoutineOptions:
    """What a person says of a new routine."""

    name: str
    schedule: str = ""
    """In plain words; empty: that of the recipe."""
    recipe: str | None = None
    prompt: str | None = None
    targets: Sequence[str] = ()
    """Where reports go; empty: where the recipe sends them, else into a file."""
    facts: Sequence[str] | None = None
    """The names of the FACT_TEMPLATES to gather, and URLs of pages; None for those facts that the
    prompt and the trigger ask for.
    """
    is_printed: bool = False
    """Whether the file is printed only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRoutine:
    """A routine file, before it is written."""

    path: Path
    text: str
    routine: Routine
    schedule: Schedule
    now: datetime
    asks: str | None
    """What a person is asked about in its runs; empty if nothing, None if that is not known."""
    notes: Sequence[str]
    """What else the policy says of it."""
    policy_file: Path
    rule: str
    """The rule that policy.toml lacks, so that its runs may read the pages that they gather; empty
    if it lacks none.
    """
    fails: bool
    """Whether each of its runs would fail by the policy as it is."""

    @property
    def words(self) -> str:
        """When it runs, in English."""
        return self.schedule.words(*self.routine.event_words)

    @property
    def fires(self) -> list[datetime]:
        """The next slots, in the schedule's zone."""
        fires, moment = list[datetime](), self.now
        while len(fires) < FIRES_SHOWN and (slot := self.schedule.next_active(moment)):
            fires.append(slot.astimezone(self.schedule.zone))
            moment = slot
        return fires


def compose(
    config: Config, options: NewRoutineOptions, *, state: Path, socket: Path, now: datetime
) -> NewRoutine:
    """Return a new routine, read and judged as a daemon on `state` would. Raises Refused, with
    what can be written instead, for a routine that the daemon would not take.
    """
    path = path_of_new(config.routines_path, options.name)
    for target in options.targets:
        if target not in config.target_names:
            raise Refused(
                f"--to: config.toml has no [targets.{display(target)}]; add it, or choose of "
                f"{', '.join(sorted(config.target_names))}"
            )
    zone = ZoneInfo(config.timezone or host_zone())
    trigger = _read_schedule(options, zone, now)
    try:
        own_tools = user_tools.load(config).names()
    except ConfigError as error:
        raise Refused(str(error)) from None
    if config.search.kind:
        own_tools.append("web_search")
    checks = routine_checks(config, {*TOOLS, *own_tools})
    if options.recipe is None:
        text = _text_of_task(options, trigger, path, zone=zone, now=now)
    else:
        text = _text_of_recipe(options, trigger, zone=zone, now=now)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise Refused("the prompt is not UTF-8 text, so no file can hold it") from None
    try:
        routines_read = load_folder(config.routines_path, agent_folder=state / AGENT_FOLDER)
    except ConfigError as error:
        raise Refused(f"{display(path)} cannot be written: {error}") from None
    try:
        routine = check_source(content, path, checks=checks, routines=routines_read)
    except ConfigError as error:
        hint = ""
        if options.recipe is not None:
            hint = f"; what the recipe needs stands at its head: {find_recipe(options.recipe)}"
        raise Refused(f"{error}{hint}") from None
    rule, fails = "", False
    try:
        policy = load_policy(config, state=state, socket=socket, own_tools=own_tools)
    except ConfigError as error:
        approvals, notes = None, [f"what a person is asked about is not known: {error}"]
    else:
        routines = [*routines_read.routines.values(), routine]
        policy = with_folders_in_use(policy, config, routines, state=state)
        approvals = describe_approvals(routine, policy, datetime.now().astimezone())
        faults = policy_faults(policy, [routine])
        fails = bool(faults)
        rule = find_missing_rule(policy, routine, _make_policy_reader(config, state, own_tools))
        if options.recipe is not None and options.facts is not None and rule:
            text = _with_rule_in_comment(text, rule)
        notes = []
        if not rule:
            notes = [str(fault) for fault in faults]
            notes += [note for note in policy_notes(policy, [routine]) if note != approvals]
            if notes and needed_lines(text, "policy.toml"):
                notes.append("the lines that it needs in policy.toml stand at the head of the file")
    if _asks_for_mail(options.prompt or "") and not any(
        config.targets[target.to].kind in ("mail", "apprise")
        for target in routine.deliver
        if target.to in config.targets
    ):
        notes.append(
            "the prompt asks for a mail, which no agent sends: --to NAME delivers to "
            "[targets.NAME] of config.toml"
        )
    if unread_urls := find_unread_urls(routine):
        urls_text = ", ".join(map(display, unread_urls))
        reason = "nothing gathers it"
        pages = [step.args["url"] for step in routine.gather if step.tool == "http_request"]
        if options.recipe is not None and pages:
            reason = f"it reads the pages of the recipe, {', '.join(map(display, pages))}"
        written = "" if options.is_printed else "remove the file and "
        notes.append(
            f"no run reads {urls_text}, which the prompt names: {reason}, "
            f"and no tool is offered; {written}write it again with --look "
            f"{','.join(map(display, unread_urls))}"
        )
    return NewRoutine(
        path=path,
        text=text,
        routine=routine,
        schedule=schedule_of(routine, zone=zone.key),
        now=now,
        asks=approvals,
        notes=notes,
        policy_file=config.policy_path,
        rule=rule,
        fails=fails,
    )


def _make_policy_reader(
    config: Config, state: Path, own_tools: Sequence[str]
) -> Callable[[str], Policy]:
    """Return a function that reads the text of a policy, or raises ConfigError."""

    def read(text: str) -> Policy:
        plain_text = text.removeprefix("\ufeff")
        return Policy.read(plain_text, workspace=config.workspace_path(state), tools=own_tools)

    return read


def _read_schedule(options: NewRoutineOptions, zone: ZoneInfo, now: datetime) -> Trigger | None:
    """Return the [trigger] that the words of the schedule mean; None to use that of the recipe.

    Raises UnclearArgument for words that are not clear.
    """
    if not options.schedule.strip() and options.recipe is not None:
        return None
    try:
        return parse_schedule_text(options.schedule, zone, now=now)
    except UnclearScheduleError as error:
        raise UnclearArgument(str(error)) from None


def _asks_for_mail(prompt: str) -> bool:
    """Tell whether a prompt wants its report mailed."""
    mail = r"\b(?:e-?)?mail (?:it|this|that|them|me|us)\b|\bby (?:e-?)?mail\b"
    return bool(re.search(mail, prompt, re.IGNORECASE))


# --- a task


def _text_of_task(
    options: NewRoutineOptions,
    trigger: Trigger | None,
    path: Path,
    *,
    zone: ZoneInfo,
    now: datetime,
) -> str:
    """Return the file of a routine for a prompt."""
    trigger = trigger or {}
    task = (options.prompt or NOT_WRITTEN_YET.format(file=display(path))).strip()
    facts = _choose_facts(options, trigger)
    tables = [
        _table("[trigger]", trigger),
        _table("[run]", {"prompt": task}),
        *(FACT_TEMPLATES[name].table for name in facts if not is_url(name)),
        *_page_tables(filter(is_url, facts)),
        *_deliver_tables(options.targets or ["file"], _report_path(trigger, zone, now)),
    ]
    return f"# {display(' '.join(options.schedule.split()))}\n" + "\n".join(tables)


def _choose_facts(options: NewRoutineOptions, trigger: Trigger) -> list[str]:
    """Return the names of the FACT_TEMPLATES to gather, and URLs. Raises Refused for an unknown
    name.
    """
    if options.facts is None:
        prompt = options.prompt or ""
        facts = [
            name
            for name, template in FACT_TEMPLATES.items()
            if template.prompt_pattern and re.search(template.prompt_pattern, prompt, re.IGNORECASE)
        ]
        return [*facts, *(["files"] if "watch" in trigger else [])]
    for name in options.facts:
        if name not in FACT_TEMPLATES and not is_url(name):
            alternative = did_you_mean(name, FACT_TEMPLATES)
            raise Refused(f"--look knows no {name!r}; {alternative}, or the URL of a page")
    return list(dict.fromkeys(options.facts))


def _report_path(trigger: Mapping[str, Any], zone: ZoneInfo, now: datetime) -> str:
    """Return the path of reports: by day, or with the time if there may be several runs a day."""
    data = {"trigger": trigger, "run": {"prompt": "x"}}
    schedule = schedule_of(routine_of(data, Path("x.toml")), zone=zone.key)
    slot = schedule.next(now)
    is_daily = slot is None or (schedule.period(slot) or timedelta.max) >= timedelta(hours=23)
    is_event = any(key in trigger for key in ("watch", "webhook", "after", "on_start"))
    if is_daily and not is_event:
        return "reports/{routine}/{slot:%Y-%m-%d}.md"
    return "reports/{routine}/{slot:%Y-%m-%d-%H%M%S}.md"


# --- a recipe


def _text_of_recipe(
    options: NewRoutineOptions, trigger: Trigger | None, *, zone: ZoneInfo, now: datetime
) -> str:
    """Return the file of a recipe, with its comments, changed as the options say."""
    file = find_recipe(options.recipe or "")
    text = file.read_text("utf-8")
    data = tomllib.loads(text)
    tables = _TABLE.split(text)
    if options.facts is not None:
        tables = _replace_pages(tables, data, options)
    command = rf"(?<=`agentctl seen ){re.escape(file.stem)}(?=[ `])"
    tables[0] = re.sub(command, lambda _: options.name, tables[0])
    if trigger is not None:
        if "catch_up" in data["trigger"] and trigger.keys() & {"every", "cron"}:
            trigger = {**trigger, "catch_up": data["trigger"]["catch_up"]}
        data["trigger"] = trigger
        tables = _replace_tables(tables, "[trigger]", [_table("[trigger]", trigger)])
    if options.prompt:
        task = options.prompt.strip().replace("\r\n", "\n")  # as TOML reads it
        data["run"]["prompt"] = task
        line = tomli_w.dumps({"prompt": task}, multiline_strings=True).rstrip()
        tables = [
            _PROMPT.sub(lambda _: line, table, count=1) if table.startswith("[run]\n") else table
            for table in tables
        ]
    if options.targets:
        tables_by_target = {table["to"]: table for table in data.get("deliver", ())}
        path = _report_path(data["trigger"], zone, now)
        path = next((table["path"] for table in tables_by_target.values() if "path" in table), path)
        new_tables = list(_deliver_tables(options.targets, path, tables_by_target))
        data["deliver"] = tomllib.loads("\n".join(new_tables))["deliver"]
        tables = _replace_tables(tables, "[[deliver]]", new_tables)
    text = "".join(tables)
    if tomllib.loads(text) != data:
        raise Refused(
            f"{display(file)} has another layout than a recipe; copy it and edit the copy"
        )
    return text


def _replace_pages(
    tables: list[str], data: dict[str, Any], options: NewRoutineOptions
) -> list[str]:
    """Return the tables of a recipe that reads pages with other pages, and change `data` so. Raises
    Refused for another recipe.
    """
    urls = list(dict.fromkeys(options.facts or ()))
    reads_pages = {step["tool"] for step in data.get("gather", ())} == {"http_request"}
    if not (urls and all(map(is_url, urls)) and reads_pages):
        raise Refused(
            "--look and --no-look are for a routine without --recipe, which gathers its own"
            + ("; of this one --look takes the URLs of other pages" if reads_pages else "")
        )
    new_tables = list(_page_tables(urls))
    data["gather"] = tomllib.loads("\n".join(new_tables))["gather"]
    tables = _replace_tables(tables, "[[gather]]", new_tables)
    url_list = ", ".join(map(_quote, urls))
    tables[0] = re.sub(
        r"^#   urls = \[.*\]", lambda _: f"#   urls = [{url_list}]", tables[0], flags=re.MULTILINE
    )
    tables[0], data["description"] = _describe_pages(tables[0], urls, options.recipe or "")
    if "changed" in data.get("gate", ()):
        data["gate"]["changed"] = [f"{step['name']}.body" for step in data["gather"]]
        line = f"changed = [{', '.join(map(_quote, data['gate']['changed']))}]"
        tables = [
            re.sub(r"^changed = \[[^\]]*\]", lambda _: line, table, flags=re.MULTILINE)
            if table.startswith("[gate]\n")
            else table
            for table in tables
        ]
    return tables


def _describe_pages(head: str, urls: Sequence[str], recipe: str) -> tuple[str, str]:
    """Return what stands above the tables of a recipe, as it is for other pages, and the new
    description.
    """
    hosts = dict.fromkeys(urlsplit(url).netloc.rpartition("@")[2] for url in urls)
    description = f"What is new at {', '.join(hosts)}"
    line = f"description = {_quote(description)}"
    head = re.sub(r"^description = .*$", lambda _: line, head, flags=re.MULTILINE)
    purpose = (
        "# Reads the pages below and reports what is new in them. It needs a model, as an agent "
        f"reports items.\n# Begun with the recipe {recipe}.\n#\n"
    )
    return purpose + head.partition("\n#\n")[2], description


def _with_rule_in_comment(text: str, rule: str) -> str:
    """Return a recipe whose comment on policy.toml has this rule."""
    lines = "".join(f"#   {line}".rstrip() + "\n" for line in rule.splitlines())
    return re.sub(
        r"^# In policy\.toml:\n(?:#   .*\n)+",
        lambda _: f"# In policy.toml:\n{lines}",
        text,
        count=1,
        flags=re.MULTILINE,
    )


def _replace_tables(tables: Sequence[str], head: str, new_tables: Iterable[str]) -> list[str]:
    """Return the tables of a file with others in place of those with this head, which are added at
    the end if there are none.
    """
    indexes = [index for index, table in enumerate(tables) if table.startswith(f"{head}\n")]
    first_index = indexes[0] if indexes else len(tables)
    tables_before = list(tables[:first_index])
    tables_after = [
        table
        for index, table in enumerate(tables[first_index:], first_index)
        if index not in indexes
    ]
    if tables_before:
        tables_before[-1] = tables_before[-1].rstrip("\n") + "\n\n"
    texts = [f"{table}\n" for table in new_tables]
    if not tables_after:
        texts[-1] = texts[-1].rstrip("\n") + "\n"
    return [*tables_before, *texts, *tables_after]


# --- TOML


def _table(head: str, data: Mapping[str, Any]) -> str:
    """Return a table of TOML; a list with one item takes one line."""
    text = tomli_w.dumps(data, multiline_strings=True)
    return f"{head}\n" + re.sub(r" = \[\n    (.*),\n\]", r" = [\1]", text)


def _page_tables(urls: Iterable[str]) -> Iterable[str]:
    """Yield a [[gather]] for each page."""
    for name, url in name_pages(urls).items():
        head = f"[[gather]]\nname = {_quote(name)}\n"
        yield f'{head}tool = "http_request"\nargs = {{ url = {_quote(url)} }}\n'


def _quote(text: str) -> str:
    """Return a text as TOML has it."""
    return tomli_w.dumps({"x": text}).removeprefix("x = ").rstrip("\n")


def _deliver_tables(
    targets: Iterable[str], path: str, known_tables: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterable[str]:
    """Yield a [[deliver]] for each target: as the recipe has it, if it has that target."""
    for target in dict.fromkeys(targets):
        table: Mapping[str, Any] = {"to": target, **({"path": path} if target == "file" else {})}
        yield _table("[[deliver]]", (known_tables or {}).get(target, table))


# --- what is said of it


def write(routine: NewRoutine) -> None:
    """Write the file atomically; raise Refused if it exists."""
    write_new(routine.path, routine.text)


def describe(new_routine: NewRoutine, *, json: bool) -> str:
    """Return which file was written, when its routine runs, what it looks at, where its reports go
    and what a person is asked about.
    """
    file, fires, routine = os.fspath(new_routine.path), new_routine.fires, new_routine.routine
    command = f"agentctl run {routine.name}"
    if json:
        from json import dumps

        return dumps(
            {
                "file": file,
                "words": new_routine.words,
                "next": [slot.isoformat() for slot in fires],
                "gathers": [gather.name for gather in routine.gather],
                "targets": [target.to for target in routine.deliver],
                "asks": new_routine.asks or None,
                "notes": list(new_routine.notes),
                "rule": new_routine.rule or None,
                "try": command,
            }
        )
    words = display(new_routine.words)
    start_words = f"it runs {words}"
    if routine.first_run:
        start_words = f"it runs as soon as the daemon sees it, and {words}"
    if fires:
        starts = ", ".join(f"{format_date_time(slot, new_routine.now)} {slot:%Z}" for slot in fires)
        start_words += f"; next: {starts}"
    targets = ", ".join(
        f"{target.to} {_fill_path(new_routine, target.path)}" if target.path else target.to
        for target in routine.deliver
    )
    lines = [
        f"wrote {file}",
        start_words,
        _describe_facts(routine),
        f"its reports go to {targets}",
    ]
    if new_routine.asks is not None and not (new_routine.fails and not new_routine.asks):
        lines.append(new_routine.asks or "a person is asked about nothing")
    lines += [f"note: {note}" for note in new_routine.notes]
    if new_routine.rule:
        consequence = "each of its runs fails" if new_routine.fails else "it is not gathered"
        lines += [
            f"until these lines stand in {display(new_routine.policy_file)}, {consequence}:",
            "",
            new_routine.rule,
            "",
        ]
    try_it = "try it"
    if new_routine.rule or new_routine.fails:
        try_it = "then try it" if new_routine.rule else "once that is mended, try it"
    return "\n".join([*lines, f"{try_it}: {command}"])


def _fill_path(new_routine: NewRoutine, path: str) -> str:
    """Return where the report of the next run goes; that of an event, where one of now would go."""
    report = Report(
        run="{run}",  # not known yet
        routine=new_routine.routine.name,
        slot=(new_routine.fires or [new_routine.now])[0],
        status=Status.SUCCEEDED,
        text="",
        scheduled_zone=new_routine.schedule.zone.key,
    )
    return display(os.fspath(fill_path(path, report)))


def _describe_facts(routine: Routine) -> str:
    """Return in a sentence what a run of the routine knows besides the prompt."""
    if routine.gather:
        steps = ", ".join(f"{gather.name} ({gather.tool})" for gather in routine.gather)
        return f"it gathers {steps}"
    if routine.run.tools:
        return f"It gathers no facts; its agent may use {', '.join(routine.run.tools)}"
    if routine.is_started_by_events:
        return "It gathers no facts besides what its event brings"
    return (
        "It gathers no facts: a model can only say what it knows by itself; "
        f"--look {','.join(name for name in FACT_TEMPLATES if name != 'files')} gathers some, "
        "--look URL a page"
    )
