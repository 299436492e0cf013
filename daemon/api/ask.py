"""People speak to the agent: the routes of `ask` and `tell`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.runs import cancel_run
from daemon.api.schemas import RunView, view_of_run
from daemon.errors import Refused
from daemon.models import new_id

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import RoutedMessage


class RoutedMessageView(RunView):
    """The run that a message has become part of."""

    new: bool
    """Whether it was begun for this message."""


async def ask(
    api: ApiContext,
    *,
    text: str,
    session: str | None = None,
    fresh: str | None = None,
    event: str | None = None,
) -> RoutedMessageView:
    """Send a message to the agent; the same `event` again gives the same run. `fresh` begins the
    conversation anew.
    """
    await api.administration.take_up_changes()
    message = await api.conversations.ask(
        text, event=event or new_id(), session=session, is_new_session=bool(fresh)
    )
    return await _load_message_view(api, message)


class WithdrawnMessageView(TypedDict):
    """What has become of a message that was withdrawn."""

    run: str | None
    """The run that has it; null if there is none, nor will be."""
    new: bool
    """Whether that run was begun for it, and is cancelled; else it goes on with the message."""


async def withdraw(
    api: ApiContext, *, event: str, session: str | None = None
) -> WithdrawnMessageView:
    """Withdraw a message that was sent with this `event`, or is still on its way: no run begins for
    it, and one that has begun is cancelled.
    """
    message = await api.conversations.withdraw(event, session=session)
    if message is None:
        return WithdrawnMessageView(run=None, new=False)
    if message.has_new_run:
        with suppress(Refused):  # the run has ended already
            await cancel_run(api, id=message.run.id)
    return WithdrawnMessageView(run=message.run.id, new=message.has_new_run)


async def tell(
    api: ApiContext,
    *,
    id: str,  # noqa: A002
    text: str,
    event: str | None = None,
) -> RoutedMessageView:
    """Send a message to a run: it reads it at its next iteration; if it has ended, a new run that
    knows of it does.
    """
    run = await api.journal.runs.get(id)
    message = await api.conversations.tell(run, text, event=event or new_id())
    return await _load_message_view(api, message)


async def _load_message_view(api: ApiContext, message: RoutedMessage) -> RoutedMessageView:
    run = await api.journal.runs.get(message.run.id)
    deliveries = await api.journal.outbox.find_of_runs([run.id]) if run.status.has_ended else ()
    view = view_of_run(run, deliveries, api.queue.queue_position(run.id))
    return RoutedMessageView(**view, new=message.has_new_run)


ROUTES: tuple[RouteRow, ...] = (
    ("POST", "/v1/ask", ask),
    ("POST", "/v1/ask/withdraw", withdraw),
    ("POST", "/v1/runs/{id}/tell", tell),
)
