"""The tool `routine`: what runs here by itself, seen and steered by an agent, and routines of its
own making.

The policy has to name this tool: no pattern stands for it. Files of people are never touched.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import Field

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.tools.registry import FunctionRegistry


class RoutineControl(Protocol):
    """Who knows the routines, makes new ones and starts them."""

    def list_routines(self) -> list[Json]: ...
    def show(self, name: str) -> Json: ...
    async def create(self, context: ToolContext, proposal: RoutineProposal) -> Json: ...
    async def remove(self, context: ToolContext, name: str) -> Json: ...
    async def pause(self, name: str, until: str) -> Json: ...
    async def resume(self, name: str) -> Json: ...
    async def run(self, context: ToolContext, name: str) -> Json: ...


class RoutineProposal:
    """What an agent wants a routine of its own to be."""

    def __init__(
        self,
        name: str,
        when: str,
        prompt: str,
        description: str = "",
        tools: list[str] | None = None,
        deliver: list[str] | None = None,
    ) -> None:
        self.name, self.when, self.prompt, self.description = name, when, prompt, description
        self.tools, self.deliver = tools, deliver


def register(registry: FunctionRegistry, control: RoutineControl) -> None:
    """Offer the routines."""

    async def routine(
        context: ToolContext,
        action: Literal["list", "show", "create", "remove", "pause", "resume", "run"],
        name: Annotated[
            str, Field(description="Which routine; of create: its new name, made of a-z, 0-9 and -")
        ] = "",
        when: Annotated[
            str,
            Field(
                description=(
                    "create: when it runs, like 'weekdays at 9am', 'every 2 hours' or '30 8 * * "
                    "1-5'"
                )
            ),
        ] = "",
        prompt: Annotated[
            str,
            Field(
                description=(
                    "create: its task, with all it needs to know: it remembers nothing of this talk"
                )
            ),
        ] = "",
        description: Annotated[
            str, Field(description="create: what it is for, in one line", max_length=200)
        ] = "",
        tools: Annotated[
            list[str] | None,
            Field(description="create: which of your own tools it may use; by default all of them"),
        ] = None,
        deliver: Annotated[
            list[str] | None,
            Field(
                description=(
                    "create: which of your own targets its report goes to; by default all of them"
                )
            ),
        ] = None,
        until: Annotated[
            str,
            Field(
                description=(
                    "pause: until when, like 2026-12-01T09:00:00Z, or for how long, like 2h; else "
                    "till resume"
                )
            ),
        ] = "",
    ) -> Json | list[Json]:
        """See which routines run here by themselves, and steer them: pause one, let it go on, run
        it now.

        With create you make one of your own, which has at most your rights, tools, limits and
        targets; only those that you have made can you remove. What people wrote is theirs and is
        never changed.
        """
        if action == "list":
            return control.list_routines()
        if not name:
            raise ToolFailed(f"{action} needs the name of a routine")
        match action:
            case "show":
                return control.show(name)
            case "create":
                return await control.create(
                    context, RoutineProposal(name, when, prompt, description, tools, deliver)
                )
            case "remove":
                return await control.remove(context, name)
            case "pause":
                return await control.pause(name, until)
            case "resume":
                return await control.resume(name)
            case "run":
                return await control.run(context, name)

    registry.register("routine", None, routine)
