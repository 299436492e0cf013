"""Make the settings of a daemon from its config and the files that the config names."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog

from daemon.app.policy import load_policy
from daemon.definitions.config.tables import BUILT_IN_TARGETS, CALLS_A_PERSON
from daemon.definitions.words import display
from daemon.delivery.targets import Targets
from daemon.providers.pool import Providers
from daemon.runs.settings import Settings, WebhookSender
from daemon.store.incidents import IncidentSettings
from daemon.system.clock import host_zone

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.definitions.config.config import Config
    from daemon.runs.settings import LiveSettings
    from daemon.runs.tracing import RunTracer
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock
    from daemon.tools.registry import FunctionRegistry

log = structlog.get_logger()

# The variables by which OpenTelemetry says where spans go, and with which keys.
OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
OTLP_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def read_settings(
    installation: Installation,
    config: Config,
    own_tools: FunctionRegistry,
    *,
    old_settings: Settings | None = None,
) -> Settings:
    """Read the policy and make targets and providers of `config`.

    The providers of `old_settings` are kept if nothing about them has changed. Raises ConfigError
    for a policy that gives tools access to files of the daemon, and where a key or an address is
    missing.
    """
    env, secrets = installation.env, installation.secrets
    workspace = config.workspace_path(installation.state)
    policy = load_policy(
        config,
        state=installation.state,
        socket=installation.socket,
        own_tools=own_tools.names(),
    )
    providers = Providers(config, env, secrets)
    providers.get(config.provider)  # a missing key is reported now, not at 08:30
    if (
        old_settings is not None
        and config.providers == old_settings.config.providers
        and config.provider == old_settings.config.provider
        and providers.keys == old_settings.providers.keys
    ):
        providers = old_settings.providers
    webhook_secret = config.hooks_secret()
    if webhook_secret:
        secrets.add(webhook_secret.get_secret_value())
    senders = {
        name: WebhookSender(
            kind=config.hooks.senders[name].kind,
            secret=secret.get_secret_value(),
            tolerance=config.hooks.senders[name].tolerance.total_seconds(),
        )
        for name, secret in config.sender_secrets().items()
    }
    for sender in senders.values():
        secrets.add(sender.secret)
    proxies = [value for name, value in env.items() if name.lower() in PROXIES]
    for url in (*config.addresses(), *proxies):
        secrets.add_address(url)
    for server in config.mcp.values():
        passed_variables = {name: env[name] for name in server.pass_env if name in env}
        secrets.add_environment({**server.env, **passed_variables})
    for provider in config.providers.values():
        secrets.add_environment(provider.program_environment(env))
    return Settings(
        config=config,
        zone=ZoneInfo(config.timezone or host_zone()),
        policy=policy,
        targets=Targets(config, workspace=workspace, env=env, secrets=secrets),
        providers=providers,
        webhook_secret=webhook_secret.get_secret_value() if webhook_secret else None,
        senders=senders,
    )


def incident_settings_of(config: Config) -> IncidentSettings:
    """Return to whom incidents are reported, and how often."""
    rules = config.incidents
    return IncidentSettings(
        remind=rules.remind,
        cool_down=rules.cool_down,
        to=rules.to,
        record_targets=frozenset(
            name
            for name in (*BUILT_IN_TARGETS, *config.targets)
            if not CALLS_A_PERSON[config.kind_of_target(name)]
        ),
    )


def log_overlay_error(config: Config) -> str | None:
    """Log what is wrong with the settings that agents wrote, and return it as a sentence; None if
    nothing is wrong.
    """
    if not config.overlay_error:
        return None
    log.warning("config.overlay_ignored", fault=str(config.overlay_error))
    return f"what agents wrote with the tool config does not count: {config.overlay_error}"


def open_tracer(
    installation: Installation,
    config: Config,
    settings: LiveSettings,
    journal: Journal,
    clock: Clock,
) -> RunTracer | None:
    """Return the tracer that exports the spans of runs, as `[otel]` of `config` asks for.

    Returns None, and imports nothing, if neither the config nor the environment names a collector.
    Raises ConfigError if its address cannot be used.
    """
    endpoint, env, secrets = config.otel.endpoint, installation.env, installation.secrets
    if not endpoint and not any(env.get(name) for name in OTLP_ENDPOINTS):
        return None
    from daemon.runs.tracing import RunTracer
    from daemon.telemetry.span_exporter import SpanExporter, find_receiver, otlp_pipeline

    receiver = find_receiver(endpoint, env, file=display(config.file))
    if receiver is None:
        return None
    for name in OTLP_HEADERS:
        secrets.add_headers(env.get(name, ""))
    exporter = SpanExporter(lambda: otlp_pipeline(receiver))
    return RunTracer(exporter, journal, settings=settings, clock=clock, redact=secrets.redact)
