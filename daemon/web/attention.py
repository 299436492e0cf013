"""What the menu of every view counts: calls that wait for an answer, and open incidents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from daemon.cli.client import Client

MAX_COUNT = 50


class Attention(NamedTuple):
    """How many things a person should look at."""

    approvals: int = 0
    incidents: int = 0

    @property
    def icon(self) -> str:
        """The file of the page's icon: its colour tells what a tab in the background holds."""
        if self.incidents:
            return "icon-wrong.svg"
        return "icon-asking.svg" if self.approvals else "icon.svg"

    def count_at(self, path: str) -> str:
        """Return the number to show at an entry of the menu; empty if there is none."""
        number = {"/approvals": self.approvals, "/deliveries": self.incidents}.get(path, 0)
        return f"{MAX_COUNT}+" if number > MAX_COUNT else str(number or "")


def request_attention(client: Client) -> Attention:
    """Count what waits and what is wrong; incidents that a person knows of are left out."""
    limit = MAX_COUNT + 1
    approvals = client.request("GET", f"/v1/approvals?status=pending&limit={limit}")["items"]
    incidents = client.request("GET", f"/v1/incidents?limit={limit}")["items"]
    open_incidents = [
        incident for incident in without_approvals(incidents) if not incident["acked"]
    ]
    return Attention(approvals=len(approvals), incidents=len(open_incidents))


def without_approvals(incidents: Iterable[Any]) -> list[Any]:
    """Return the incidents but those of calls that wait, which are shown as approvals."""
    return [
        incident for incident in incidents if not incident["subject"].startswith("approval for ")
    ]
