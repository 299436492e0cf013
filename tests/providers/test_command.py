"""A program as a model: prompt on stdin, answer from stdout, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.errors import (
    AnswerTooLarge,
    ConfigError,
    Fatal,
    ProviderError,
    TransportError,
    Unavailable,
)
from daemon.models import Image, LLMMessage, Usage
from daemon.providers import LLMProvider, create_provider
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import user

SYSTEM = LLMMessage(role="system", content="You are agentd.")
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def python(code: str, *arguments: str, **settings: Any) -> LLMProvider:
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return create_provider(
        "command", name="mine", command=command, environment=ENVIRONMENT, **settings
    )


def put_out(output: str, *, complaints: str = "", code: int = 0, **settings: Any) -> LLMProvider:
    """Return a program that puts out a text, whatever it is asked."""
    script = (
        "import sys; sys.stdin.read(); sys.stdout.write(sys.argv[1]); "
        f"sys.stderr.write(sys.argv[2]); sys.exit({code})"
    )
    return python(script, output, complaints, **settings)


async def test_the_prompt_is_on_stdin_and_stdout_is_the_answer() -> None:
    provider = python("import sys; print(sys.stdin.read().upper())")
    answer = await provider.chat([SYSTEM, user("Say hi.")], temperature=0.3, routine="daily")
    assert (answer.content, answer.finish_reason) == ("YOU ARE AGENTD.\n\nSAY HI.", "stop")
    assert answer.function_calls == ()
    assert not provider.supports_function_calling()
    assert not provider.accepts_images


async def test_a_conversation_says_who_speaks() -> None:
    provider = python("import sys; print(sys.stdin.read())")
    earlier = LLMMessage(role="assistant", content="Two.")
    answer = await provider.chat([SYSTEM, user("How many?"), earlier, user("Sure?")])
    assert answer.content == (
        "You are agentd.\n\nUser:\nHow many?\n\nAssistant:\nTwo.\n\nUser:\nSure?\n\nAssistant:"
    )


async def test_an_image_is_left_out_with_a_note() -> None:
    provider = python("import sys; print(sys.stdin.read())")
    image = Image(data=b"\x89PNG\r\n\x1a\n", media_type="image/png")
    answer = await provider.chat([LLMMessage(role="user", content="Look.", images=(image,))])
    assert answer.content == "Look.\n\n[1 image was left out: this model sees none]"


async def test_usage_is_estimated_where_the_program_does_not_say() -> None:
    answer = await put_out("a" * 40).chat([user("b" * 80)])
    assert answer.usage == Usage(input=20, output=10)


async def test_the_json_of_claude_code_is_read() -> None:
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "It is fine.",
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 1582,
            "cache_read_input_tokens": 10,
            "output_tokens": 16,
        },
        "modelUsage": {"claude-opus-4-8": {}},
    }
    stream = "\n".join([json.dumps({"type": "system", "subtype": "init"}), json.dumps(result)])
    # with `verbose` in its settings it puts out a list
    for output in (json.dumps(result), stream, json.dumps([{"type": "system"}, result])):
        answer = await put_out(output).chat([user("hi")])
        assert (answer.content, answer.model) == ("It is fine.", "claude-opus-4-8")
        assert answer.usage == Usage(input=1595, cache_read=10, cache_write=1582, output=16)
    failure = result | {"is_error": True, "result": "Credit balance is too low"}
    with pytest.raises(Unavailable, match=r"^mine \(.*\): Credit balance is too low$"):
        await put_out(json.dumps(failure), code=1).chat([user("hi")])


async def test_claude_code_that_gives_up_without_a_text_is_a_failure() -> None:
    result: dict[str, Any] = {"type": "result", "subtype": "error_max_turns", "is_error": False}
    with pytest.raises(Unavailable, match=r": error_max_turns$"):
        await put_out(json.dumps(result)).chat([user("hi")])
    result |= {"is_error": True, "errors": ["Reached maximum number of turns (1)"]}
    with pytest.raises(Unavailable, match=r": Reached maximum number of turns \(1\)$"):
        await put_out(json.dumps(result), code=1).chat([user("hi")])


async def test_a_line_separator_within_a_text_ends_no_event() -> None:
    events = [
        {"type": "thread.started", "thread_id": "01a2"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "One\u2028two"}},
    ]
    output = "\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    assert (await put_out(output).chat([user("hi")])).content == "One\u2028two"


async def test_the_events_of_codex_are_read() -> None:
    events: list[dict[str, Any]] = [
        {"type": "thread.started", "thread_id": "01a2"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "0", "type": "agent_message", "text": "I look."}},
        {"type": "item.completed", "item": {"id": "1", "type": "reasoning", "text": "hm"}},
        {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": "Fine."}},
        {
            "type": "turn.completed",
            "usage": {
                "input_tokens": 13634,
                "cached_input_tokens": 100,
                "cache_write_input_tokens": 7,
                "output_tokens": 44,
                "reasoning_output_tokens": 4,
            },
        },
    ]
    answer = await put_out("\n".join(map(json.dumps, events))).chat([user("hi")])
    assert answer.content == "Fine."
    assert answer.usage == Usage(input=13634, cache_read=100, cache_write=7, output=44, reasoning=4)
    events[-1] = {"type": "turn.failed", "error": {"message": "usage limit reached"}}
    with pytest.raises(Unavailable, match="usage limit reached"):
        await put_out("\n".join(map(json.dumps, events)), code=1).chat([user("hi")])


async def test_the_usage_of_llm_is_read_from_stderr() -> None:
    provider = put_out("Fine.\n", complaints="Token usage: 1,011 input, 12 output\n")
    answer = await provider.chat([user("hi")])
    assert (answer.content, answer.usage) == ("Fine.", Usage(input=1011, output=12))


USAGE = {"prompt_tokens": 1011, "completion_tokens": 12, "total_tokens": 1023}
LLM = os.environ.get("AGENTD_LLM") or shutil.which("llm")


@pytest.mark.skipif(LLM is None, reason="needs the program llm; AGENTD_LLM says where")
async def test_the_program_llm_answers_with_its_usage(tmp_path: Path) -> None:
    async with FakeVendor([{"text": "All is well.", "usage": USAGE}]) as vendor:
        (tmp_path / "extra-openai-models.yaml").write_text(
            f"- {{ model_id: mine, model_name: small, api_base: '{vendor.url}/v1' }}\n"
        )
        provider = create_provider(
            "command",
            name="llm",
            command=[str(LLM), "-m", "{model}", "--usage", "--no-log"],
            model="mine",
            environment=ENVIRONMENT | {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "sk-x"},
        )
        answer = await provider.chat([SYSTEM, user("How is the disk?")])
    assert answer.content.strip() == "All is well."
    assert (answer.usage.input, answer.usage.output) == (1011, 12)
    (request,) = vendor.requests
    assert "How is the disk?" in request.raw.decode()


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"type": "result"}', "{broken", "[1, 2]", '{"a": [' * 2000]
)
async def test_other_json_is_an_answer_as_it_stands(text: str) -> None:
    assert (await put_out(text).chat([user("hi")])).content == text


async def test_a_failure_has_the_last_words_of_the_program() -> None:
    provider = put_out("", complaints=f"{'trace ' * 200}\nnot logged in: run login\n", code=3)
    with pytest.raises(Unavailable) as failure:
        await provider.chat([user("hi")])
    assert re.match(
        r"mine \(.*\): it exited with 3: ….*not logged in: run login$", str(failure.value)
    )
    assert len(str(failure.value)) < 500
    with pytest.raises(TransportError, match="it put out nothing: try again"):
        await put_out(" \n", complaints="try again").chat([user("hi")])


@pytest.mark.slow
async def test_a_program_that_is_too_slow_is_killed_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    # the child leaves its session and holds both pipes; it would write the file after the test
    code = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "w").write(str(os.getpid()))
    signal.pause()
signal.pause()
"""
    provider = python(code, str(tmp_path / "pid"), timeout=5)
    with pytest.raises(TransportError, match="no answer within 5 s; it was killed") as failure:
        await provider.chat([user("hi")])
    assert failure.value.unsure
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_cancelled_call_leaves_nothing_behind(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import os, signal, sys; fd = os.open(sys.argv[1], os.O_WRONLY); "
        "os.write(fd, (str(os.getpid()) + ' ' + os.getcwd()).encode()); os.close(fd); "
        "signal.pause()"
    )
    call = asyncio.create_task(python(code, str(fifo)).chat([user("hi")]))
    pid, folder = (await asyncio.to_thread(fifo.read_text)).split()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert not Path(folder).exists()


async def test_an_answer_that_does_not_end_is_cut_off() -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    with pytest.raises(AnswerTooLarge, match="larger than max_answer_mb = 1; it was killed"):
        await python(code, max_answer_mb=1).chat([user("hi")])


async def test_complaints_without_end_are_bounded_and_the_answer_arrives() -> None:
    code = "import sys\nfor _ in range(100): sys.stderr.write('x' * 65536)\nprint('done')"
    assert (await python(code).chat([user("hi")])).content == "done"


async def test_a_long_prompt_arrives_whole_even_if_it_is_not_read() -> None:
    prompt = "x" * 3_000_000
    count = python("import sys; print(len(sys.stdin.read()))")
    assert (await count.chat([user(prompt)])).content == str(len(prompt))
    assert (await put_out("done").chat([user(prompt)])).content == "done"
    assert (await python("print('done')").chat([user(prompt)])).content == "done"


async def test_it_runs_in_an_empty_folder_with_its_own_environment_only() -> None:
    code = "import os; print(os.listdir('.'), sorted(os.environ))"
    provider = create_provider(
        "command",
        command=[sys.executable, "-I", "-S", "-c", code],
        environment={"HOME": "/nonexistent", "TOKEN": "t"},
    )
    answer = (await provider.chat([user("hi")])).content
    folder, _, variables = answer.partition("] ")
    assert folder == "["
    assert set(eval(variables)) - {"LC_CTYPE"} == {"HOME", "TOKEN"}


async def test_at_most_max_concurrency_run_at_once(tmp_path: Path) -> None:
    code = """
import os, sys
try:
    os.mkdir(sys.argv[1])
except FileExistsError:
    print("another one runs")
else:
    os.rmdir(sys.argv[1])
    print("alone")
"""
    provider = python(code, str(tmp_path / "lock"), max_concurrency=1)
    answers = await asyncio.gather(*(provider.chat([user("hi")]) for _ in range(4)))
    assert {answer.content for answer in answers} == {"alone"}


async def test_the_model_is_a_word_of_the_command() -> None:
    code = "import sys; print(sys.argv[1:])"
    provider = python(code, "-m", "{model}", model="gpt-5.5")
    answer = await provider.chat([user("hi")])
    assert (answer.content, answer.model) == ("['-m', 'gpt-5.5']", "gpt-5.5")


async def test_a_missing_program_is_named_with_what_to_do() -> None:
    for program, expected in (
        ("no-such-program", r"no program no-such-program on agentd's PATH; install it, or write"),
        ("/no/such/program", r"no program /no/such/program that can be executed; install it"),
    ):
        provider = create_provider("command", command=[program], environment=ENVIRONMENT)
        with pytest.raises(Fatal, match=expected):
            await provider.chat([user("hi")])


async def test_a_program_that_cannot_be_executed_is_a_failure(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o700)
    provider = create_provider("command", command=[str(program)], environment=ENVIRONMENT)
    with pytest.raises(ProviderError, match=r"it exited with 126: .*No such file"):
        await provider.chat([user("hi")])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "providers.mine.command: is missing; kind command needs a program"),
        ({"command": [" "]}, "names no program"),
        ({"command": ["bin/llm"]}, "a path of a program is absolute, or begins with ~/"),
        ({"command": ["llm", "a\0b"]}, "a word holds a NUL"),
        ({"command": ["llm", "{model}"]}, "providers.mine.model: is missing; command has {model}"),
        (
            {"command": ["llm", "{model}"], "model": "--yolo"},
            "providers.mine.model: a model's name begins with a letter or digit",
        ),
        (
            {"command": ["llm", "{model}"], "model": "gpt+4"},
            "a model's name begins with a letter or digit, and has only these and . _ : / @ -",
        ),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_at_once(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as failure:
        create_provider("command", name="mine", **settings)
    assert problem in str(failure.value)
