"""Metrics as the Prometheus parser reads them."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from prometheus_client.parser import text_string_to_metric_families

from daemon.models import Run, Status
from daemon.telemetry.metrics import Histogram, JournalMetrics, Metrics

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
NOTHING = JournalMetrics(
    version="1",
    started=1.5,
    runs={},
    outbox={},
    incidents=0,
    routines={},
    successes={},
    tokens={},
    cost={},
    size=0,
)


def run(status=Status.SUCCEEDED, late=0.0, took=3.0, routine="daily", event=None):
    start = NOW + timedelta(seconds=late)
    return Run(
        id="01J", routine=routine, definition="h", trigger="cron", slot=NOW, created=NOW, started=start,  # noqa: E501
        ended=start + timedelta(seconds=took), status=status, event=event,
    )  # fmt: skip


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_counts_of_more_than_ten_digits_are_written_whole():
    tokens = {("local", "m", "input"): 12_345_678_901}
    text = Metrics().render(replace(NOTHING, tokens=tokens, size=98_765_432_109))
    assert " 12345678901\n" in text
    assert " 98765432109\n" in text


def test_runs_deliveries_and_lateness_are_counted():
    metrics = Metrics()
    for late in (0.2, 2, 70):
        metrics.count_run(run(late=late))
    metrics.count_run(run(Status.FAILED, routine='odd "name"\\'))
    metrics.count_run(run(late=500, event="by hand"))
    metrics.count_delivery("mail", "delivered")
    samples = families(metrics.render(NOTHING))
    counts = {
        tuple(sample.labels.values()): sample.value for sample in samples["agentd_runs"].samples
    }
    assert counts == {("daily", "succeeded"): 4, ('odd "name"\\', "failed"): 1}
    lateness = {
        s.labels.get("le", s.name): s.value for s in samples["agentd_slot_lateness_seconds"].samples
    }
    assert (lateness["1"], lateness["5"], lateness["300"], lateness["+Inf"]) == (2, 3, 4, 4), (
        "an event is never late"
    )
    assert samples["agentd_deliveries"].samples[0].labels == {
        "target": "mail",
        "outcome": "delivered",
    }


def test_a_run_that_its_spread_put_off_is_not_late():
    metrics = Metrics()
    metrics.count_run(run(late=1700), delay=timedelta(minutes=28))
    metrics.count_run(run(late=1600), delay=timedelta(minutes=28))
    assert metrics.lateness.total == 20


def test_no_duration_is_negative_after_the_clock_was_set_back():
    metrics = Metrics()
    metrics.count_run(run(took=-3600))
    assert metrics.duration.total == 0 and sum(metrics.duration.counts) == 1


def test_every_metric_family_has_help_and_type_once():
    lines = Metrics().render(NOTHING).splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) and all(
        f"# HELP {name} " in "\n".join(lines) for name in names
    )


def test_a_histogram_adds_up():
    histogram = Histogram((1, 2))
    for value in (0.5, 1.0, 1.5, 99):
        histogram.add(value)
    assert [(labels.get("le"), value) for _, labels, value in histogram.samples()] == [
        ("1", 2), ("2", 3), ("+Inf", 4), (None, 102.0), (None, 4),
    ]  # fmt: skip


async def test_the_lag_of_the_event_loop_is_measured_only_during_runs():
    metrics, loop = Metrics(), asyncio.get_running_loop()
    with metrics.measure_lag(), metrics.measure_lag():
        await asyncio.sleep(0)
        time.sleep(0.35)  # somebody holds the loop up
        while not sum(metrics.lag.counts):
            await asyncio.sleep(0.01)
    assert metrics.lag.total >= 0.09
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == [], (
        "an idle daemon sleeps"
    )


async def test_metrics_are_served_on_the_socket_and_the_configured_address(home, tmp_path):
    home.routine("morning", '[run]\nprompt = "x"\n[[deliver]]\nto = "log"\n')
    home.write("config.toml", '[listen]\naddress = "127.0.0.1:0"\n')
    await home.start()
    assert (await home.agentctl("run", "morning")).code == 0
    text = (await home.agentctl("metrics")).out
    samples = families(text)
    assert samples["agentd_runs"].samples[0].labels == {"routine": "morning", "status": "succeeded"}
    assert (
        "agentd_last_success_timestamp_seconds" in samples
        and samples["agentd_database_size_bytes"].samples[0].value > 0
    )
    file = tmp_path / "agentd.prom"
    assert (await home.agentctl("metrics", "--textfile", str(file))).code == 0
    assert (
        families(file.read_text()).keys() == samples.keys() and file.stat().st_mode & 0o777 == 0o644
    )
    assert [path.name for path in tmp_path.glob("agentd.prom*")] == ["agentd.prom"]
    [log_line] = await home.wait_for_log("listen.opened")
    assert log_line["metrics"] is True
    await home.stop()


async def test_the_network_address_serves_metrics_and_no_control(tmp_path):
    from daemon.api.public import PublicServer
    from tests.api.harness import open_harness, parse

    async with open_harness(tmp_path) as harness:
        server = PublicServer("127.0.0.1:0", harness.api, metrics=True, hooks=None)
        serving = asyncio.create_task(server.serve())
        await server.ready()
        host, port = server._listener_socket.socket.getsockname()

        async def get(target, *headers):
            reader, writer = await asyncio.open_connection(host, port)
            lines = [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
            writer.write("\r\n".join(lines).encode())
            try:
                return parse(await reader.read())
            finally:
                writer.close()

        answer = await get("/metrics")
        assert answer.status == 200 and "agentd_build_info" in families(answer.raw.decode())
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert (await get("/metrics", "Origin: http://evil.example")).status == 403
        assert [
            (await get(target)).status
            for target in ("/v1/status", "/v1/routines", "/", "/v1/hooks/x")
        ] == [404] * 4
        server.stop()
        await serving
