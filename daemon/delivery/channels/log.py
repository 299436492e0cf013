"""Deliver reports to the daemon's own log, where `agentctl logs` and journald show them."""

from __future__ import annotations

import structlog

from daemon.delivery.message import compose
from daemon.models import Delivery, Receipt, Status

log = structlog.get_logger()


class LogChannel:
    """Logs one event per report: at level info for a success, else as a warning."""

    async def send(self, delivery: Delivery) -> Receipt:
        message, report = compose(delivery), delivery.report
        write = log.info if report.status is Status.SUCCEEDED else log.warning
        write(
            "report.written",
            delivery=delivery.id,
            run=report.run,
            routine=report.routine,
            slot=report.slot.isoformat(),
            status=report.status.value,
            title=message.title,
            text=message.body,
        )
        return Receipt(detail="the daemon's log")
