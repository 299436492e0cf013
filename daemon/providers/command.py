"""A program of this machine as a model, such as `claude -p`, `codex exec` or `llm`: the prompt goes
to its standard input, and its standard output is the answer.

The program is not one of a tool: it is the owner's choice like the address of a vendor, so it runs
with agentd's rights and network, outside of the sandbox. It is offered none of our tools; tools of
its own are not judged by the policy, and its command has to switch them off. When the call ends,
in whatever way, nothing that it started is left (sandbox/running.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from daemon.errors import (
    AnswerTooLarge,
    ConfigError,
    Fatal,
    Fault,
    ProviderError,
    TransportError,
    Unavailable,
)
from daemon.models import Json, LLMMessage, LLMResponse, Usage
from daemon.providers.base import LLMProvider
from daemon.providers.programs import (
    MODEL_PLACEHOLDER,
    check_model,
    describe_missing_program,
    find_program,
)
from daemon.providers.vendor import MAX_ANSWER_MB, mark_unsure
from daemon.providers.wire.base import repair_text, text_without_images, to_count
from daemon.sandbox.output import BoundedOutput
from daemon.sandbox.running import CommandResult, PreparedProgram, run

_STDERR_BYTES = 64 * 1024
_MAX_REASON = 300  # characters of an error text
# The usual estimate for Latin text, for programs that do not say what they used.
_CHARACTERS_PER_TOKEN = 4
_LLM_USAGE = re.compile(r"^Token usage: ([\d,]+) input, ([\d,]+) output", re.MULTILINE)


class CommandProvider(LLMProvider):
    """A model behind a program."""

    kind: ClassVar[str] = "command"

    def __init__(
        self,
        *,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        model: str | None = None,
        name: str | None = None,
        timeout: float = 300.0,
        max_answer_mb: int = MAX_ANSWER_MB,
        max_concurrency: int | None = None,
    ) -> None:
        """`environment` are all variables of the program. Raises ConfigError."""
        self.name = name or self.kind
        _check_command(command, model, self.name)
        self._environment = dict(environment or {})
        self._program, *arguments = command
        self._arguments = [word.replace(MODEL_PLACEHOLDER, model or "") for word in arguments]
        self._model = model or Path(self._program).name
        self._timeout = timeout
        self._max_answer = max_answer_mb * 1_000_000
        self._semaphore = asyncio.Semaphore(max_concurrency) if max_concurrency else nullcontext()

    @property
    def model_name(self) -> str:
        return self._model

    def supports_function_calling(self) -> bool:
        return False

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        prompt = to_text(messages)
        try:
            async with self._semaphore:
                result, error_text = await self._run(prompt)
            answer = self._read_answer(result, error_text)
        except ProviderError as error:
            error.args = (f"{self.name} ({self._program}): {error}",)
            raise
        usage = answer.usage or Usage(
            input=len(prompt) // _CHARACTERS_PER_TOKEN,
            output=len(answer.text) // _CHARACTERS_PER_TOKEN,
        )
        return LLMResponse(content=answer.text, usage=usage, model=answer.model or self._model)

    async def _run(self, prompt: str) -> tuple[CommandResult, str]:
        """Run the program once; return its result and its standard error.

        It runs in an empty folder, which is removed afterwards, so that no file of a project
        instructs it. Raises ProviderError.
        """
        path = find_program(self._program, self._environment)
        if path is None:
            raise Fatal(describe_missing_program(self._program))
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="agentd-model-"))
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(prompt.encode("utf-8", "replace"))
                stdin.seek(0)
                stderr = _StderrPipe()
                program = PreparedProgram(
                    path=path,
                    argv=[self._program, *self._arguments],
                    stdin=stdin.fileno(),
                    stderr=stderr.write_fd,
                )
                try:
                    result = await run(
                        [(";", [program])],
                        folder=folder,
                        environment=self._environment,
                        seconds=self._timeout,
                        output_bytes=2 * self._max_answer,
                        max_output_bytes=self._max_answer,
                    )
                finally:
                    stderr.close()
                return result, stderr.output.text()
        except OSError as error:
            raise Fatal(f"cannot be started: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _read_answer(self, result: CommandResult, error_text: str) -> ProgramAnswer:
        """Return the answer, or raise ProviderError if there is none."""
        if result.stop_cause == "time":
            raise mark_unsure(
                TransportError(f"no answer within {self._timeout:g} s; it was killed")
            )
        if result.stop_cause == "output":
            size = self._max_answer // 1_000_000
            raise mark_unsure(
                AnswerTooLarge(f"the answer is larger than max_answer_mb = {size}; it was killed")
            )
        output = result.output.text()
        answer = parse_answer(output, error_text)
        if answer.fault:
            raise mark_unsure(Unavailable(_one_line(answer.fault)))
        if result.code:
            reason = _one_line(error_text) or _one_line(output) or "it gave no reason"
            raise mark_unsure(Unavailable(f"it exited with {result.code}: {reason}"))
        if not answer.text.strip():
            reason = _one_line(error_text)
            raise mark_unsure(
                TransportError(f"it put out nothing{f': {reason}' if reason else ''}")
            )
        return answer


class _StderrPipe:
    """Collects what a program puts out on standard error, in bounded memory."""

    def __init__(self) -> None:
        self.output = BoundedOutput(_STDERR_BYTES)
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_fd, self._read)

    def _read(self) -> bool:
        """Read what the pipe holds; return whether there may be more."""
        try:
            data = os.read(self._read_fd, _STDERR_BYTES)
        except BlockingIOError:
            return False
        self.output.add(data)
        return bool(data)

    def close(self) -> None:
        """Read what is left in the pipe, and close it: the program has ended."""
        self._loop.remove_reader(self._read_fd)
        os.close(self.write_fd)
        for _ in range(64):  # a pipe holds no more than this many pieces
            if not self._read():
                break
        os.close(self._read_fd)


def to_text(messages: Sequence[LLMMessage]) -> str:
    """Return a conversation as one text.

    Each message has its speaker above it, unless there is only one besides the system's.
    """
    system = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if len(turns) == 1:
        return "\n\n".join([*system, text_without_images(turns[0])])
    titles = {"user": "User:", "assistant": "Assistant:", "tool": "Result of a tool:"}
    blocks = [
        f"{titles[message.role]}\n{text_without_images(message)}"
        for message in turns
        if message.content or message.images
    ]
    return "\n\n".join([*system, *blocks, "Assistant:"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramAnswer:
    """The answer of a model, as the output of its program holds it."""

    text: str
    usage: Usage | None = None
    """None if the program does not say."""
    model: str = ""
    fault: str = ""
    """Why there is no answer, in the program's words; empty if there is one."""


def parse_answer(output: str, error_text: str = "") -> ProgramAnswer:
    """Read what a program put out: the JSON of `claude -p --output-format json` (or stream-json)
    and of `codex exec --json`, else text. `llm -u` tells its usage on standard error, which is
    `error_text`.
    """
    events = _parse_events(output)
    if (
        events
        and (result := events[-1]).get("type") == "result"
        and ("result" in result or "subtype" in result)
    ):
        return _read_claude(result)
    if events and events[0].get("type") == "thread.started":
        return _read_codex(events)
    usage = None
    if match := _LLM_USAGE.search(error_text):
        input_tokens, output_tokens = (int(count.replace(",", "")) for count in match.groups())
        usage = Usage(input=input_tokens, output=output_tokens)
    return ProgramAnswer(text=output.strip("\n"), usage=usage)


def _parse_events(output: str) -> list[Json]:
    """Return the JSON objects of an output that is nothing but such: one per line, a single one, or
    a list of them; empty if it is anything else.
    """
    if not output.lstrip().startswith(("{", "[")):
        return []
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        try:
            # not splitlines: texts in JSON may hold other characters that end a line
            value = [json.loads(line) for line in output.split("\n") if line.strip()]
        except (ValueError, RecursionError):
            return []
    events = value if isinstance(value, list) else [value]
    return events if all(isinstance(event, dict) for event in events) else []


def _read_claude(result: Json) -> ProgramAnswer:
    """Read the last object of Claude Code, of type `result`; its `input_tokens` leave out what is
    cached, as in Anthropic's API.
    """
    counts = result.get("usage")
    usage = None
    if isinstance(counts, dict):
        cache_read = to_count(counts.get("cache_read_input_tokens"))
        cache_write = to_count(counts.get("cache_creation_input_tokens"))
        usage = Usage(
            input=to_count(counts.get("input_tokens")) + cache_read + cache_write,
            cache_read=cache_read,
            cache_write=cache_write,
            output=to_count(counts.get("output_tokens")),
        )
    text = repair_text(result.get("result"))
    models = result.get("modelUsage")
    # without a text it gave up, as at its limit of turns, and older versions say so by it alone
    is_error = result.get("is_error") is True or "result" not in result
    errors = result.get("errors")
    if is_error and not text and isinstance(errors, list):
        text = "; ".join(repair_text(error) for error in errors)
    return ProgramAnswer(
        text=text,
        usage=usage,
        model=next(iter(models)) if isinstance(models, dict) and len(models) == 1 else "",
        fault=(text or str(result.get("subtype") or "it failed")) if is_error else "",
    )


def _read_codex(events: Sequence[Json]) -> ProgramAnswer:
    """Read the events of Codex: the last message of the agent is the answer."""
    text, fault, usage = "", "", None
    for event in events:
        item, error, counts = event.get("item"), event.get("error"), event.get("usage")
        if event.get("type") == "item.completed" and isinstance(item, dict):
            if item.get("type") == "agent_message":
                text = repair_text(item.get("text"))
        elif event.get("type") == "turn.completed" and isinstance(counts, dict):
            usage = Usage(
                input=to_count(counts.get("input_tokens")),
                cache_read=to_count(counts.get("cached_input_tokens")),
                output=to_count(counts.get("output_tokens")),
                cache_write=to_count(counts.get("cache_write_input_tokens")),
                reasoning=to_count(counts.get("reasoning_output_tokens")),
            )
        elif event.get("type") == "turn.failed":
            message = error.get("message") if isinstance(error, dict) else error
            fault = repair_text(message) or "the turn failed"
    return ProgramAnswer(text=text, usage=usage, fault=fault)


def _check_command(command: Sequence[str], model: str | None, name: str) -> None:
    """Raise ConfigError unless the command names a program, and its model where it takes one."""
    key, problem = "command", ""
    found = json.dumps(list(command)) if command else ""
    hint = 'like command = ["claude", "-p", "--output-format", "json", "--tools", ""]'
    takes_model = any(MODEL_PLACEHOLDER in word for word in command[1:])
    if not command:
        problem = "is missing; kind command needs a program and its words"
    elif not command[0].strip() or MODEL_PLACEHOLDER in command[0]:
        problem = "names no program"
    elif "/" in command[0] and not command[0].startswith(("/", "~/")):
        problem = "a path of a program is absolute, or begins with ~/"
    elif any("\0" in word for word in command):
        problem = "a word holds a NUL"
    elif takes_model and model is None:
        key, problem = "model", f"is missing; command has {MODEL_PLACEHOLDER}"
        found, hint = "", ""
    elif model is not None and takes_model and (problem := check_model(command, model)):
        key, found, hint = "model", json.dumps(model), ""
    if problem:
        raise ConfigError(
            Fault(
                file="config.toml",
                key=f"providers.{name}.{key}",
                found=found,
                problem=problem,
                hint=hint,
            )
        )


def _one_line(text: str) -> str:
    """Return the end of a text in one line: programs say last why they gave up."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_REASON else f"…{line[-_MAX_REASON:]}"
