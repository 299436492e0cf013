"""`agentd new` composes a file that the daemon takes, from a task or a recipe, and describes it."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.commands.init import shipped_folder
from daemon.app.commands.new import FACT_TEMPLATES, NewRoutineOptions, compose, describe, write
from daemon.app.commands.new_arguments import build_new_parser
from daemon.app.commands.recipes import find_recipes, needed_lines
from daemon.definitions.config.loading import load_config
from daemon.definitions.routines.folder import load_routine
from daemon.errors import Refused
from tests.properties import scaled_settings

NOW = datetime(2026, 11, 24, 16, 20, tzinfo=UTC)  # a Tuesday
RECIPES = find_recipes()
PAGE = "http://127.0.0.1:8123/feed.atom"
CONFIG = """
timezone = "UTC"
[targets.mail]
kind = "mail"
url_file = "mail.url"
"""


class Installation:
    """A config with a mailbox, and a policy: the shipped one, or another."""

    def __init__(self, folder: Path, policy: str | None = None) -> None:
        self.folder = folder
        (folder / "routines").mkdir(exist_ok=True)
        self.write("config.toml", CONFIG)
        self.write("policy.toml", policy or (shipped_folder() / "policy.toml").read_text("utf-8"))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")
        (self.folder / name).chmod(0o600)

    def compose(self, name="x", schedule="", **options):
        """Return the new routine; what reads its text has read it from a file."""
        return compose(
            load_config(self.folder / "config.toml"),
            NewRoutineOptions(name=name, schedule=schedule, **options),
            state=self.folder / "state",
            socket=self.folder / "state" / "agentd.sock",
            now=NOW,
        )

    def says(self, *arguments, **options):
        return describe(self.compose(*arguments, **options), json=False).splitlines()


@pytest.fixture
def installation(tmp_path):
    return Installation(tmp_path)


# --- a task


def test_the_file_has_the_layout_of_the_readme(installation):
    new = installation.compose("report", "every day at 7", prompt="How is this machine?")
    assert new.text == (
        "# every day at 7\n"
        "[trigger]\n"
        'cron = "0 7 * * *"\n'
        "\n"
        "[run]\n"
        'prompt = "How is this machine?"\n'
        "\n"
        f"{FACT_TEMPLATES['machine'].table}"
        "\n"
        "[[deliver]]\n"
        'to = "file"\n'
        'path = "reports/{routine}/{slot:%Y-%m-%d}.md"\n'
    )


def test_new_says_when_where_what_and_how_to_try(installation):
    days = ("Wed 25", "Thu 26", "Fri 27")
    assert installation.says("report", "every day at 7", prompt="How is this machine?") == [
        f"wrote {installation.folder}/routines/report.toml",
        f"it runs at 07:00, UTC; next: {', '.join(f'{day} Nov 07:00 UTC' for day in days)}",
        "it gathers machine (sysinfo)",
        "its reports go to file reports/report/2026-11-25.md",
        "a person is asked about nothing",
        "try it: agentctl run report",
    ]


@pytest.mark.parametrize(
    ("schedule", "prompt", "gather_names"),
    [
        ("at 7", "Write me a daily report of this machine.", ["machine"]),
        ("at 7", "Which disks are full? Which updates wait?", ["machine"]),
        ("at 7", "这台服务器怎么样？", ["machine"]),
        ("at 7", "Sum up my commits.", ["repositories"]),
        ("at 7", "The server, and what was committed.", ["machine", "repositories"]),
        ("at 7", "Plan my day.", []),
        ("at 7", "Observe the serverless hostility.", []),
        ("at 7", None, []),
        ("when a file lands in inbox", "What is it about?", ["content"]),
    ],
)
def test_it_gathers_what_the_prompt_speaks_of(installation, schedule, prompt, gather_names):
    new = installation.compose("x", schedule, prompt=prompt)
    assert [gather.name for gather in new.routine.gather] == gather_names


def test_look_names_what_is_gathered_and_no_look_nothing(installation):
    prompt = "How is this machine?"
    new = installation.compose("x", "at 7", prompt=prompt, facts=["git", "machine", "git"])
    assert [gather.name for gather in new.routine.gather] == ["repositories", "machine"]
    assert installation.compose("x", "at 7", prompt=prompt, facts=[]).routine.gather == ()


def test_a_routine_without_facts_says_so(installation):
    facts = installation.says("x", "at 7", prompt="Plan my day.")[2]
    assert facts.startswith("It gathers no facts: ")
    assert "--look machine,git" in facts
    facts = installation.says("y", "when a file lands in inbox", prompt="What?", facts=[])[2]
    assert facts == "It gathers no facts besides what its event brings"
    assert "It gathers no facts; its agent may use" in installation.says("z", recipe="research")[2]


def test_reports_go_to_the_targets_that_are_named(installation):
    new = installation.compose("x", "every 2 hours", prompt="Hi.", targets=["mail", "file", "log"])
    assert [(target.to, target.path) for target in new.routine.deliver] == [
        ("mail", None),
        ("file", "reports/{routine}/{slot:%Y-%m-%d-%H%M%S}.md"),
        ("log", None),
    ]


def test_new_says_what_a_person_will_be_asked_about(tmp_path):
    policy = """
version = 1
[[rule]]
tool = "file_*"
effect = "allow"
[[rule]]
tool = "subagent"
effect = "ask"
"""
    new = Installation(tmp_path, policy).compose("notes", recipe="research")
    assert new.asks.startswith("notes: a person is asked before some calls of subagent")
    lines = describe(new, json=False).splitlines()
    assert new.asks in lines
    assert "a person is asked about nothing" not in lines


@pytest.mark.parametrize(
    ("options", "urls", "networks"),
    [
        ({"recipe": "releases"}, ["curl/curl/releases.atom", "versions.rss"], None),
        (
            {"recipe": "releases", "facts": [PAGE, "https://www.example.org/b?c=1,2"]},
            [PAGE, "https://www.example.org/b?c=1,2"],
            ["127.0.0.1/32"],
        ),
        (
            {"schedule": "at 7", "prompt": f"Sum up {PAGE}.", "facts": [PAGE, "machine"]},
            [PAGE],
            ["127.0.0.1/32"],
        ),
    ],
)
def test_a_routine_that_reads_pages_is_shown_with_the_rule_that_it_lacks(
    installation, options, urls, networks
):
    new = installation.compose("rel", **options)
    lines = describe(new, json=False).splitlines()
    assert f"until these lines stand in {installation.folder}/policy.toml, each of its" in str(
        lines
    )
    assert "a person is asked about nothing" not in lines, "as nothing of it runs"
    assert not [line for line in lines if line.startswith("note: ")]
    assert lines[-1] == "then try it: agentctl run rel"
    assert new.rule in "\n".join(lines)
    (rule,) = tomllib.loads(new.rule)["rule"]
    assert [written.endswith(url) for written, url in zip(rule["urls"], urls, strict=True)]
    assert (rule["routines"], rule.get("networks")) == (["rel"], networks)
    gathered = [step.args["url"] for step in new.routine.gather if step.tool == "http_request"]
    assert gathered == rule["urls"]
    policy = (installation.folder / "policy.toml").read_text("utf-8")
    installation.write("policy.toml", f"{policy}\n{new.rule}\n")
    lines = installation.says("rel", **options)
    assert lines[-2:] == ["a person is asked about nothing", "try it: agentctl run rel"]


def test_a_recipe_that_reads_other_pages_is_changed_in_all_places_that_name_them(installation):
    new = installation.compose("rel", recipe="releases", facts=[PAGE, "https://www.acme.org/x"])
    assert [step.name for step in new.routine.gather] == ["page", "acme"]
    assert new.routine.gate.changed == ("page.body", "acme.body")
    assert needed_lines(new.text, "policy.toml").strip() == new.rule, "with routines and networks"
    assert new.routine.description == "What is new at 127.0.0.1:8123, www.acme.org"
    assert "curl" not in new.text and "   # no model is asked as long as" in new.text
    assert "two feeds" not in new.text and "`agentctl seen rel forget KEY`" in new.text


def test_a_recipe_whose_prompt_names_pages_says_that_it_keeps_its_own(installation):
    (note,) = installation.compose("rel", recipe="releases", prompt=f"Read {PAGE}.").notes
    assert f"no run reads {PAGE}, which the prompt names: it reads the pages of the recipe" in note
    assert note.endswith(f"remove the file and write it again with --look {PAGE}")


def test_where_the_file_is_printed_only_no_note_has_it_removed(installation):
    (note,) = installation.compose("x", "at 7", prompt=f"Read {PAGE}.", is_printed=True).notes
    assert note.endswith(f"no tool is offered; write it again with --look {PAGE}")


def test_the_path_of_reports_that_an_event_starts_is_shown_as_of_now(installation):
    new = installation.compose("x", "when a file lands in in", prompt="Hi.")
    (line,) = [line for line in describe(new, json=False).splitlines() if "its reports" in line]
    assert line == "its reports go to file reports/x/2026-11-24-162000.md"


def test_a_rule_that_would_not_be_enough_is_not_shown(tmp_path):
    policy = 'version = 1\n[[rule]]\ntool = "http_request"\neffect = "deny"\n'
    new = Installation(tmp_path, policy).compose("x", "at 7", prompt="Hi.", facts=[PAGE])
    assert new.rule == ""
    lines = describe(new, json=False).splitlines()
    assert "every run of x fails" in lines[-2]
    assert lines[-1] == "once that is mended, try it: agentctl run x"


@pytest.mark.parametrize(
    ("prompt", "facts", "unread"),
    [
        (f"Read {PAGE} and (https://acme.org/b).", None, f"{PAGE}, https://acme.org/b"),
        (f"Read {PAGE}.", [PAGE], None),
        (f"Read {PAGE}.", ["machine"], PAGE),
        ("Read the news.", None, None),
    ],
)
def test_a_page_that_the_prompt_names_and_nothing_reads_is_noted(
    installation, prompt, facts, unread
):
    notes = installation.compose("x", "at 7", prompt=prompt, facts=facts).notes
    assert len(notes) == bool(unread)
    if unread:
        assert f"no run reads {unread}, which the prompt names" in notes[0]
        assert notes[0].endswith(f"with --look {unread.replace(', ', ',')}")


def test_a_url_of_look_may_hold_a_comma():
    words = ["x", "at", "7", "--look", "git,https://acme.org/a,b,machine,http://b.org"]
    options = build_new_parser().parse_intermixed_args(words)
    assert options.facts == ["git", "https://acme.org/a,b", "machine", "http://b.org"]


def test_with_a_faulty_policy_new_says_that_questions_are_not_known(tmp_path):
    new = Installation(tmp_path, "version = 2\n").compose("x", "at 7", prompt="Hi.")
    assert len(new.notes) == 1
    assert "what a person is asked about is not known: " in new.notes[0]
    assert "a person is asked about nothing" not in describe(new, json=False)


@pytest.mark.parametrize(
    ("prompt", "targets", "has_note"),
    [
        ("Write me a daily report of this machine and mail it to me.", (), True),
        ("Send the weather by e-mail.", ["log"], True),
        ("Write me a daily report and mail it to me.", ["file", "mail"], False),
        ("Sum up the mails that landed.", (), False),
    ],
)
def test_a_prompt_that_asks_for_a_mail_without_a_mailbox_gets_a_note(
    installation, prompt, targets, has_note
):
    notes = installation.compose("x", "at 7", prompt=prompt, targets=targets).notes
    assert [("which no agent sends: --to NAME" in note) for note in notes] == [True] * has_note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"schedule": "at 7", "facts": ["mashine"]},
            "knows no 'mashine'; did you mean \"machine\"",
        ),
        ({"schedule": "at 7", "facts": ["files"]}, "without watch no file lands"),
        (
            {"schedule": "at 7", "targets": ["post"]},
            "config.toml has no [targets.post]; add it, or",
        ),
        ({"schedule": "at 7", "recipe": "mail-reprot"}, 'did you mean "mail-report"?'),
        ({"recipe": "mail-report", "facts": ["git"]}, "--look and --no-look are for a routine wi"),
        ({"recipe": "day-advice"}, 'no such routine (found "day-book")'),
        ({"recipe": "invoices", "schedule": "at 7"}, "without watch no file lands"),
        ({"recipe": "greeting", "schedule": "when a file lands in x"}, "drawn from the slots of a"),
        ({"schedule": "at 7", "prompt": "\udcff"}, "the prompt is not UTF-8 text"),
        ({"schedule": "when it rains"}, "'when it rains' is not understood; write it like "),
        ({"schedule": ""}, "'' is not understood; write it like "),
    ],
)
def test_what_the_daemon_would_not_take_is_refused_in_one_sentence(installation, options, message):
    with pytest.raises(Refused) as error:
        installation.compose(**options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_recipe_that_lacks_its_target_names_the_file_with_the_lines(installation):
    installation.write("config.toml", "")
    with pytest.raises(Refused) as error:
        installation.compose(recipe="mail-report")
    assert "no such target in config.toml" in str(error.value)
    assert str(RECIPES["mail-report"]) in str(error.value)


PROMPTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
FOLDERS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def test_any_prompt_stands_in_the_file_as_it_was_given(installation):
    @scaled_settings(100)
    @given(PROMPTS, st.sampled_from([None, "daily-report", "mail-report"]))
    def check(prompt, recipe):
        new = installation.compose("x", "at 7", prompt=prompt, recipe=recipe)
        assert new.routine.run.prompt == prompt.strip()

    check()


def test_a_prompt_with_the_line_ends_of_windows_goes_with_a_recipe_too(installation):
    new = installation.compose("x", recipe="daily-report", prompt="Say hi.\r\nIn one line.")
    assert new.routine.run.prompt == "Say hi.\nIn one line."


def test_any_folder_is_watched_as_it_was_given_or_refused(installation):
    @scaled_settings(100)
    @given(FOLDERS)
    def check(folder):
        try:
            new = installation.compose("x", f"when a file lands in {folder}", prompt="Hi.")
        except Refused:
            return
        assert len(new.routine.trigger.watch) == 1
        assert tomllib.loads(new.text)["trigger"] == {"watch": list(new.routine.trigger.watch)}

    check()


# --- a recipe


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_written_as_it_is(installation, recipe):
    if recipe == "day-advice":
        write(installation.compose("day-book", recipe="day-book"))
    new = installation.compose("x", recipe=recipe)
    text = RECIPES[recipe].read_text("utf-8")
    assert new.text == text.replace("`agentctl seen releases", "`agentctl seen x")
    write(new)
    assert load_routine(new.path) == new.routine


@pytest.mark.parametrize("recipe", RECIPES)
def test_schedule_prompt_and_targets_of_a_recipe_are_replaced_and_all_else_stays(
    installation, recipe
):
    schedule = "every 2 hours"
    if "{path}" in RECIPES[recipe].read_text("utf-8"):
        schedule = "when a file lands in letters"
    prompt = 'Say "hi".\n[run]\nprompt = 3\n\\ and """.'
    new = installation.compose(
        "x", schedule, recipe=recipe, prompt=prompt, targets=["log", "file", "mail"]
    )
    new_routine, original = (
        tomllib.loads(new.text),
        tomllib.loads(RECIPES[recipe].read_text("utf-8")),
    )
    assert new_routine["run"].pop("prompt") == prompt
    catch_up = {key: original["trigger"][key] for key in original["trigger"].keys() & {"catch_up"}}
    assert new_routine["trigger"] in ({"every": "2h", **catch_up}, {"watch": ["letters/*"]})
    assert [target["to"] for target in new_routine["deliver"]] == ["log", "file", "mail"]
    for data in (new_routine, original):
        data.pop("trigger")
        data.pop("deliver")
    original["run"].pop("prompt")
    assert new_routine == original
    head = RECIPES[recipe].read_text("utf-8").partition("\ndescription = ")[0]
    assert new.text.startswith(head.replace("`agentctl seen releases", "`agentctl seen x"))


def test_a_target_that_the_recipe_has_stays_as_it_is(installation):
    new = installation.compose("x", recipe="sentinel", targets=["mail"])
    assert new.routine.deliver[0].on == ("succeeded", "failed")
    new = installation.compose("x", recipe="week-in-git", targets=["file"])
    assert new.routine.deliver[0].path == "reports/{routine}/{slot:%G-W%V}.md"


def test_a_recipe_with_a_first_run_says_that_it_runs_at_once(installation):
    when = installation.says("x", "at 7", recipe="daily-report")[1]
    assert when.startswith("it runs as soon as the daemon sees it, and at 07:00, UTC; next: ")
