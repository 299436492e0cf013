"""An agent around a script, real functions and a journal in memory."""

from dataclasses import fields

import pytest

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.models import Effect, Verdict
from daemon.providers import create_provider
from daemon.tools.registry import FunctionRegistry


class Steps:
    """A journal in memory that numbers what it is given."""

    is_exclusive = True

    def __init__(self):
        self.steps = []
        self.durable = []

    async def append(self, *steps, durable=False):
        self.steps.extend(steps)
        self.durable.append(durable)

    def write_lazily(self, *steps):
        self.steps.extend(steps)


class Rules:
    """A policy of two sets."""

    def __init__(self, denied_tools=(), read_only=()):
        self.denied_tools, self.read_only = set(denied_tools), set(read_only)

    def judge(self, tool, arguments, *, routine, tainted=False):
        if tool in self.denied_tools:
            return Verdict(
                effect=Effect.DENY, rule="rule 3 (deny)", reason="not here", alternative="git log"
            )
        return Verdict(effect=Effect.ALLOW, rule="rule 1")

    def is_read_only(self, tool, arguments):
        return tool in self.read_only


@pytest.fixture
def registry():
    function_registry = FunctionRegistry()

    def finish(status: str = "succeeded", notify: bool = True, reason: str = "", report: str = ""):
        """End."""
        return "ended"

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    function_registry.register("finish", None, finish, read_only=True)
    function_registry.register("add", None, add, read_only=True)
    return function_registry


@pytest.fixture
def journal():
    return Steps()


def _taken_from(options, kind):
    """Take the options out that are fields of a dataclass."""
    return {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}


class EventList:
    """Keeps what an agent emits."""

    wants_deltas = True

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(event)


@pytest.fixture
def make(registry, journal):
    def build(*replies, **options):
        provider = options.pop("provider", None) or create_provider("scripted", replies=replies)
        services = {"policy": Rules(), "step_writer": journal} | _taken_from(options, AgentServices)
        return Agent(
            provider,
            registry,
            options=AgentOptions(**_taken_from(options, AgentOptions)),
            services=AgentServices(**services),
            **options,
        )

    return build


def call(name, /, *, id=None, **arguments):  # noqa: A002
    fields = {"name": name, "arguments": arguments}
    return {**fields, "id": id} if id else fields


def calls(*tool_calls, text=""):
    return {"text": text, "tool_calls": list(tool_calls)}
