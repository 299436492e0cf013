"""`agentctl metrics`: the metrics of the daemon, in the text format of Prometheus."""

from __future__ import annotations

import os

from daemon.cli.call import DONE, NOT_SUCCEEDED, Call


def metrics(call: Call) -> int:
    """Print the metrics, or write them where the textfile collector of node_exporter looks."""
    text = call.client.request_text("GET", "/metrics")
    if not call.textfile:
        call.out.write_line(text.rstrip())
        return DONE
    # node_exporter reads *.prom only, so it never reads half a file
    temporary_file = f"{call.textfile}.{os.getpid()}"
    try:
        with open(temporary_file, "w", encoding="utf-8") as file:  # noqa: PTH123  pathlib would cost the client 5 ms
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary_file, call.textfile)  # noqa: PTH105
    except OSError as error:
        call.err.write_line(
            f"agentctl metrics: {call.textfile} cannot be written: {error.strerror}"
        )
        return NOT_SUCCEEDED
    return DONE
