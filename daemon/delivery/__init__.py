"""Reports on their way to their targets: which ends are told where, in what words, and until when it is tried.

`outbox.py` sends; `targets.py` knows the places; a channel per file (`file.py`, `log.py`, `desktop.py`, `webhook.py`,
`mail.py`, `apprise.py`) knows how one kind of place is reached; `letter.py` words a report for its reader, and
`markup.py` turns its Markdown into what the reader's program shows. Not here: the outbox rows, which the journal
commits together with the end of a run.
"""

from __future__ import annotations

from daemon.delivery.base import Channel, deliveries_for
from daemon.delivery.outbox import Outbox
from daemon.delivery.targets import KINDS, Targets, missing_extra

__all__ = ["KINDS", "Channel", "Outbox", "Targets", "deliveries_for", "missing_extra"]
