"""Into the daemon's own log, where `agentctl logs` and journald show it."""

from __future__ import annotations

import structlog

from daemon.delivery.message import compose
from daemon.models import Delivery, Receipt, Status

log = structlog.get_logger()


class LogChannel:
    """One event per report; one that tells of trouble is a warning."""

    async def send(self, delivery: Delivery) -> Receipt:
        letter, report = compose(delivery), delivery.report
        say = log.info if report.status is Status.SUCCEEDED else log.warning
        say(
            "report.written",
            delivery=delivery.id,
            run=report.run,
            routine=report.routine,
            slot=report.slot.isoformat(),
            status=report.status.value,
            title=letter.title,
            text=letter.body,
        )
        return Receipt(detail="the daemon's log")
