"""`agentd import-crontab` turns the lines of a crontab into routines, or says why it does not."""

from __future__ import annotations

import getpass
import json
import os
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.commands.import_crontab import CrontabSource, compose_import, read_source, write
from daemon.app.commands.init import shipped_folder
from daemon.app.commands.policy_files import PolicyFiles
from daemon.app.main import main
from daemon.definitions.config.loading import load_config
from daemon.definitions.routines.folder import load_folder
from daemon.errors import Refused
from daemon.scheduler.routine_checks import routine_checks
from tests.properties import scaled_settings

CONFIG = """\
# my own
timezone = "UTC"

[targets.ops]
kind = "mail"
url = "sendmail://?to=ops@example.org,root"
"""
ME = getpass.getuser()


class Importer:
    """A config and a policy into which crontabs are imported."""

    def __init__(self, folder: Path, policy: str | None = None) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "routines").mkdir()
        for name, text in (
            ("config.toml", CONFIG),
            ("policy.toml", policy or (shipped_folder() / "policy.toml").read_text("utf-8")),
        ):
            (folder / name).write_text(text, "utf-8")
            (folder / name).chmod(0o600)

    @property
    def config(self):
        return load_config(self.folder / "config.toml")

    def compose(self, text, *, has_users=False, targets=()):
        files = PolicyFiles(
            config=self.config, state=self.state, socket=self.state / "s", as_json=False
        )
        return compose_import(
            CrontabSource(text=text, name="a test", has_users=has_users),
            self.config,
            state=self.state,
            targets=targets,
            read_policy=files.make_reader(),
            env={},
        )

    def run(self, text, *options):
        """Run the verb on a file; return its exit code."""
        file = self.folder / "tab"
        file.write_text(text)
        places = ["--config", str(self.folder / "config.toml"), "--state", str(self.state)]
        return main(["import-crontab", str(file), *options, *places])

    def load_routines(self):
        """Return what the daemon would load."""
        contents = load_folder(
            self.config.routines_path,
            agent_folder=self.state / "routines.d",
            checks=routine_checks(self.config),
        )
        assert contents.faults == {}
        return contents.routines


@pytest.fixture
def importer(tmp_path):
    return Importer(tmp_path)


def refusal(importer, text, **options):
    result = importer.compose(text, **options)
    assert result.routines == []
    (remark,) = result.refused_lines
    return remark.remark


def test_a_line_becomes_a_script_with_the_schedule_and_the_command(importer):
    result = importer.compose("# disks\n30 7 * * 1-5 df -h\n")
    (routine,) = result.routines
    assert (routine.line, routine.name, routine.rules) == (2, "df", ())
    assert routine.text == (
        "# From a crontab: 30 7 * * 1-5 df -h\n"
        "[trigger]\n"
        'cron = "30 7 * * 1-5"\n\n'
        '[run]\nmode = "script"\n\n'
        '[[gather]]\nname = "output"\ntool = "shell"\nargs = { command = "df -h" }\n\n'
        '[[deliver]]\nto = "file"\npath = "reports/{routine}/{slot:%Y-%m-%d-%H%M}.md"\n'
    )
    assert (result.refused_lines, result.notes, result.targets) == ([], [], {})


def test_nicknames_zones_and_starts_are_kept(importer):
    result = importer.compose(
        "@reboot uptime\nCRON_TZ=Europe/Berlin\n@hourly free -m\nCRON_TZ=\n@daily date +\\%F\n"
    )
    triggers = [tomllib.loads(routine.text)["trigger"] for routine in result.routines]
    assert triggers == [
        {"on_start": True},
        {"cron": "@hourly", "timezone": "Europe/Berlin"},
        {"cron": "@daily"},
    ]
    assert tomllib.loads(result.routines[2].text)["gather"][0]["args"] == {"command": "date +%F"}


def test_mailto_is_the_target_of_the_lines_below_it(importer):
    result = importer.compose(
        "@daily df\nMAILTO=Root, ops@example.org\n@daily free\n"
        'MAILTO=ada@example.org\n@daily uptime\n@hourly nproc\nMAILTO=""\n@daily date\n'
    )
    targets = [
        [table["to"] for table in tomllib.loads(routine.text).get("deliver", ())]
        for routine in result.routines
    ]
    assert targets == [["file"], ["ops"], ["mail-ada"], ["mail-ada"], []]
    assert result.targets == {"mail-ada": {"kind": "mail", "url": "sendmail://?to=ada@example.org"}}


def test_lines_without_mailto_go_where_the_option_says(importer):
    (routine,) = importer.compose("@daily df", targets=["ops", "log"]).routines
    assert tomllib.loads(routine.text)["deliver"] == [{"to": "ops"}, {"to": "log"}]
    with pytest.raises(Refused, match=r"config\.toml has no"):
        importer.compose("@daily df", targets=["nowhere"])


def test_a_rule_is_proposed_for_each_command_that_the_policy_denies(importer):
    result = importer.compose("@daily touch a b && df -h | tee c\n")
    (routine,) = result.routines
    assert routine.rules == (
        """[[rule]]
tool = "shell"
effect = "allow"
routines = ["touch-a-b"]
argv = ["touch", "a", "b"]""",
        '[[rule]]\ntool = "shell"\neffect = "allow"\nroutines = ["touch-a-b"]\nargv = ["tee", "c"]',
    )


def test_a_folder_that_commands_do_not_see_is_noted(importer, tmp_path):
    (tmp_path / "backup").mkdir()
    result = importer.compose(
        f"@daily du -sh {tmp_path}/backup\n@daily du -sh /usr/share\n@daily du -sh /nowhere\n"
    )
    assert [(note.line, f"see {tmp_path}/backup:" in note.remark) for note in result.notes] == [
        (1, True)
    ]
    assert "[paths] read of policy.toml" in result.notes[0].remark


@pytest.mark.parametrize(
    ("command", "is_noted"),
    [
        ("cat {folder}/queue.txt", True),  # which another job writes
        ("du --files0-from={folder}/list", True),
        ("du -sh /etc/os-release", False),
        ("du -sh /bin", False),
        ("sed -n /^a/p notes.txt", False),
    ],
)
def test_paths_that_commands_do_not_see_are_noted(importer, tmp_path, command, is_noted):
    result = importer.compose(f"@daily {command.format(folder=tmp_path)}\n")
    assert bool(result.notes) == is_noted
    assert all(str(tmp_path) in note.remark for note in result.notes)


def test_a_path_is_noted_also_where_a_rule_allows_the_command(importer, tmp_path):
    policy = importer.folder / "policy.toml"
    line = f"@daily du -sh {tmp_path}\n"
    (rule,) = importer.compose(line).routines[0].rules
    policy.write_text(f"{policy.read_text()}\n{rule}\n")
    result = importer.compose(line)
    assert result.routines[0].rules == ()
    assert f"see {tmp_path}:" in result.notes[0].remark


def test_the_proposed_rules_are_enough_and_for_this_routine_alone(importer, capsys):
    assert importer.run("@daily touch a\n", "--write") == 0
    policy = importer.folder / "policy.toml"
    before = policy.read_text()
    assert "touch" not in before
    rules = json.loads(_json_of(importer, capsys, "@daily touch a b\n"))["rules"]
    policy.write_text("\n\n".join([before, *rules]))
    result = importer.compose("@daily touch a b\n@daily touch a c\n")
    assert [len(routine.rules) for routine in result.routines] == [0, 1]


def _json_of(importer, capsys, text):
    capsys.readouterr()
    importer.run(text, "--json")
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("@daily df > /tmp/x", ["are written by the file_write tool", 'tool = "script"']),
        ("@daily echo $HOME", ["$ is not expanded here", 'tool = "script"']),
        ("@daily cd /tmp && ls", ["cd is no program, but a word of a shell"]),
        ("@daily /nowhere/backup.sh", ["backup.sh", 'tool = "script"']),
        ("@daily no-such-program-at-all", ["is no program of this system"]),
        ("@daily mail ada%hello", ["is its standard input, which no command has here"]),
        ("@daily cat .env", ["keys and passwords stay out of reports"]),
        ("SHELL=/usr/bin/python3\n@daily df", ["its SHELL is /usr/bin/python3"]),
        ("CRON_TZ=Mars/Base\n@daily df", ["its CRON_TZ, Mars/Base, is no time zone"]),
        ("MAILTO=not an@address@at all\n@daily df", ["is no address"]),
        ("61 * * * * df", ["minute '61'"]),
        ("@daily df\\0", [""]),
    ],
)
def test_what_cannot_be_taken_over_is_said_with_what_to_do(importer, line, words):
    remark = refusal(importer, line)
    assert "\n" not in remark
    for part in words:
        assert part in remark


def test_a_system_crontab_gives_only_the_lines_of_this_user(importer):
    result = importer.compose(f"17 * * * * somebody df\n17 * * * * {ME} free -m\n", has_users=True)
    assert [routine.line for routine in result.routines] == [2]
    (remark,) = result.refused_lines
    assert "it runs as somebody, and agentd as" in remark.remark


def test_variables_for_the_commands_are_noted(importer):
    result = importer.compose("PATH=/opt/bin\nFOO=bar\nMAILTO=\n@daily df\n")
    assert [(note.line, note.text) for note in result.notes] == [
        (1, "PATH=/opt/bin"),
        (2, "FOO=bar"),
    ]


def test_names_are_unique_and_the_same_again_in_another_order(importer):
    lines = ["@daily df -h", "@hourly df -h", "@daily df -h /", "@weekly df -i"]
    first = {r.text: r.name for r in importer.compose("\n".join(lines)).routines}
    again = {r.text: r.name for r in importer.compose("\n".join([*lines, "@daily w"])).routines}
    assert len(set(first.values())) == 4
    assert first.items() <= again.items()


def test_the_same_line_twice_is_one_routine(importer):
    result = importer.compose("@daily df\n@daily  df\n")
    assert [routine.line for routine in result.routines] == [1]
    assert "it is line 1 once more" in result.refused_lines[0].remark


def test_nothing_is_written_without_the_option(importer, capsys):
    before = sorted(importer.folder.rglob("*"))
    assert importer.run("MAILTO=ada@example.org\n@daily df -h\n") == 0
    out = capsys.readouterr().out
    assert f"+++ {importer.folder / 'routines/df.toml'}" in out
    assert '+args = { command = "df -h" }' in out
    assert "+[targets.mail-ada]" in out
    assert "nothing was written: --write writes them" in out
    assert sorted(path for path in importer.folder.rglob("*") if path.name != "tab") == before


def test_what_is_written_loads_and_is_not_imported_again(importer, capsys):
    text = "MAILTO=ada@example.org\n@daily df -h\n@daily touch a\n@daily nope > x\n"
    assert importer.run(text, "--write") == 1
    out = capsys.readouterr().out
    assert "wrote " in out
    assert 'argv = ["touch", "a"]' in out
    assert "Take their lines out of the crontab" in out
    assert importer.load_routines().keys() == {"df", "touch-a"}
    assert importer.config.targets["mail-ada"].kind == "mail"
    assert (importer.folder / "config.toml").read_text().startswith("# my own\n")
    assert "touch" not in (importer.folder / "policy.toml").read_text()

    assert importer.run(text, "--write") == 1
    out = capsys.readouterr().out
    assert "wrote " not in out
    assert "Imported before" in out
    assert importer.load_routines().keys() == {"df", "touch-a"}


def test_targets_are_written_into_a_config_that_begins_with_a_mark_of_windows(importer):
    config = importer.folder / "config.toml"
    config.write_text("\ufeff" + config.read_text("utf-8"), "utf-8")
    assert importer.run("MAILTO=ada@example.org\n@daily df -h\n", "--write") == 0
    assert importer.config.targets["mail-ada"].kind == "mail"


def test_the_json_has_all_that_people_read(importer, capsys):
    text = "X=1\n@daily df -h\n@daily nope > x\n"
    answer = json.loads(_json_of(importer, capsys, text))
    assert answer["written"] is False
    assert [routine["name"] for routine in answer["routines"]] == ["df"]
    assert [remark["line"] for remark in answer["refused"]] == [3]
    assert [remark["line"] for remark in answer["notes"]] == [1]


def test_without_a_file_crontab_is_asked(importer, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "crontab"
    program.write_text("#!/bin/sh\necho '@daily df -h'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    source = read_source(None, has_users=False, stdin=lambda: b"")
    assert source.text == "@daily df -h\n"
    program.write_text("#!/bin/sh\necho 'no crontab for ada' >&2\nexit 1\n")
    with pytest.raises(Refused, match="no crontab for ada"):
        read_source(None, has_users=False, stdin=lambda: b"")
    program.unlink()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(Refused, match="name a FILE, or - for standard input"):
        read_source(None, has_users=False, stdin=lambda: b"")


def test_a_crontab_comes_from_standard_input_or_a_file():
    assert read_source("-", has_users=True, stdin=lambda: b"x\xff").text == "x\ufffd"
    with pytest.raises(Refused, match="cannot be read"):
        read_source("/nowhere/tab", has_users=False, stdin=lambda: b"")
    with pytest.raises(Refused, match="cannot be read"):
        read_source("a\0b", has_users=False, stdin=lambda: b"")


_LINES = st.one_of(
    st.text(max_size=40),
    st.builds(
        "{} {}".format,
        st.sampled_from(["* * * * *", "@daily", "@reboot", "1-5/2 3 * jan 7", "99 * * * *"]),
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(
                [
                    "df -h",
                    "touch a",
                    "cat 'a b' \"c\\d\"",
                    "ls *.md | wc -l",
                    "rm -rf /",
                    "cat .env",
                    "echo 'é ü' '\"'",
                    "date +\\%F",
                    "mail x%y",
                    "./run",
                    "test [ a",
                ]
            ),
        ),
    ),
    st.builds(
        "{}={}".format,
        st.sampled_from(["MAILTO", "CRON_TZ", "SHELL", "PATH"]),
        st.one_of(st.text(max_size=20), st.sampled_from(["", "root", "UTC", "/bin/sh", "a@b.org"])),
    ),
)


@scaled_settings(50)
@given(st.lists(_LINES, max_size=6), st.booleans())
def test_any_crontab_gives_routines_that_load_or_one_sentence_a_line(lines, has_users):
    text = "\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        importer = Importer(Path(folder))
        result = importer.compose(text, has_users=has_users)
        for remark in result.refused_lines:
            assert remark.remark
            assert "\n" not in remark.remark
        job_lines = [*(r.line for r in result.routines), *(r.line for r in result.refused_lines)]
        assert len(set(job_lines)) == len(job_lines)
        write(result, importer.config)
        assert importer.load_routines().keys() == {routine.name for routine in result.routines}
        assert [
            remark.line for remark in importer.compose(text, has_users=has_users).existing_lines
        ] == [routine.line for routine in result.routines]
