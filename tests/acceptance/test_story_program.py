"""A program as a model, as a user sets it up: checked, missing, tried, counted, out of tools."""

from __future__ import annotations

import sys

CONFIG = """
provider = "mine"
[providers.mine]
kind = "command"
command = ["my-model", "--model", "{model}"]
model = "small"
env = { GREETING = "Hello" }
pass_env = ["MY_KEY"]
timeout = "1m"
"""
PROGRAM = f"""#!{sys.executable} -I
import json, os, sys
prompt = sys.stdin.read()
assert os.environ["MY_KEY"] == "sekrit-0123456789"
assert "canary" not in os.environ.get("OTHER", "")
words = "the disk is full" if "97%" in prompt else "all is well"
sys.stderr.write("thinking with " + os.environ["MY_KEY"])
if "crash" in prompt:
    sys.exit(3)
print(json.dumps({{
    "type": "result", "is_error": False,
    "result": f"{{os.environ['GREETING']}}, {{sys.argv[2]}} says: {{words}}",
    "usage": {{"input_tokens": 100, "output_tokens": 7}},
}}))
"""
DISK = """
[run]
prompt = "How is the disk?"
retry = { attempts = 1 }
[[gather]]
name = "disk"
tool = "file_read"
args = { path = "df.txt" }
[[deliver]]
to = "file"
path = "disk.md"
"""


async def test_a_routine_asks_a_program(home):
    home.write("config.toml", CONFIG)
    home.write(
        "policy.toml",
        'version = 1\n[[rule]]\ntool = "file_read"\neffect = "allow"\npaths = ["*.txt"]\n',
    )
    home.routine("disk", DISK)
    programs = home.folder / "bin"
    programs.mkdir()
    home.env |= {
        "PATH": f"{programs}:{home.env['PATH']}",
        "MY_KEY": "sekrit-0123456789",
        "OTHER": "canary",
    }

    result = await home.agentd("validate")
    assert result.code == 0, result.out
    assert "providers.mine.command: there is no program my-model on agentd's PATH" in result.out
    result = await home.agentd("doctor")
    assert "its program is missing" in result.out

    program = programs / "my-model"
    program.write_text(PROGRAM)
    program.chmod(0o700)
    assert "my-model" not in (await home.agentd("validate")).out
    home.workspace.mkdir(mode=0o700, parents=True)
    (home.workspace / "df.txt").write_text("/dev/sda1 97% /\n")
    await home.start()
    result = await home.agentctl("run", "disk")
    assert result.code == 0, result.err
    assert "Hello, small says: the disk is full" in result.out
    run = (await home.agentctl("inspect", "last", "--json")).json
    assert (run["provider"], run["model"]) == ("mine", "small")
    assert (run["usage"]["input"], run["usage"]["output"]) == (100, 7)
    assert "the disk is full" in (home.workspace / "disk.md").read_text()

    (home.workspace / "df.txt").write_text("crash\n")
    result = await home.agentctl("run", "disk")
    assert result.code != 0
    run = (await home.agentctl("inspect", "last", "--json")).json
    assert "mine (my-model): it exited with 3" in run["detail"], run
    assert "sekrit" not in run["detail"]


async def test_a_routine_that_needs_tools_is_refused_with_a_program(home):
    home.write("config.toml", CONFIG)
    agent = '[run]\nmode = "agent"\nprompt = "Look."\n'
    home.routine("by-default", f'{agent}tools = ["shell"]\n')
    home.routine(
        "by-fallback", f'{agent}provider = "offline"\nskills = "auto"\nfallback = ["mine"]\n'
    )
    home.routine("items", f'{agent}[dedupe]\nkey = "url"\n')
    home.routine("other-model", '[run]\nprompt = "Look."\nmodel = "-x"\n')
    home.routine("talks", agent)
    result = await home.agentd("validate")
    assert result.code == 1
    for line in (
        "by-default.toml:1: run.provider: is a program (kind command), which is offered no tools",
        "by-fallback.toml:6: run.fallback[0]: is a program (kind command)",
        "items.toml:1: run.provider: is a program (kind command)",
        "other-model.toml:3: run.model: a model's name begins with a letter or digit",
    ):
        assert line in result.out, result.out
    assert "talks.toml: run" not in result.out
    home.write(
        "config.toml", CONFIG.replace('kind = "command"\ncommand', 'kind = "offline"\ncommand')
    )
    result = await home.agentd("validate")
    assert "providers.mine.command: only kind command takes it" in result.out
