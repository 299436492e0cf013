"""Environment variables override config.toml."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.commands.validate import check_all
from daemon.definitions.config.config import Config
from daemon.definitions.config.environment import apply_overrides, overrides_in
from daemon.definitions.config.live import LiveConfig
from daemon.definitions.config.loading import load_config
from daemon.definitions.config_overlay import Overlay
from daemon.errors import ConfigError, Fault, ToolFailed

CLAUDE = '[providers.my-claude]\nkind = "claude"\nmodel = "m"\n'


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Load a config file that anybody may read, with variables."""

    def load(text: str, overlay: str | None = None, **env: str) -> Config:
        path, overlay_path = tmp_path / "config.toml", tmp_path / "overlay.toml"
        path.write_text(text)
        path.chmod(0o644)
        if overlay is not None:
            overlay_path.write_text(overlay)
        return load_config(path, overlay_path, env=env)

    return load


def faults_of(load: Any, text: str, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(text, **env)
    return [str(fault) for fault in error.value.faults]


def test_variables_set_keys_of_tables_and_above_all_tables(load: Any) -> None:
    config = load(
        CLAUDE + '[log]\nlevel = "info"\n',
        AGENTD_LOG__LEVEL="debug",
        AGENTD_LOG__KEEP="3",
        AGENTD__PROVIDER="my-claude",
        AGENTD_PROVIDERS__MY_CLAUDE__MODEL="claude-x",
        AGENTD_PROVIDERS__LOCAL='{ kind = "open_source", model = "7b", base_url = "http://a/v1" }',
    )
    assert (config.log.level, config.log.keep) == ("debug", 3)
    assert config.provider == "my-claude"
    assert config.providers["my-claude"].model == "claude-x"
    assert config.providers["local"].model == "7b"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("AGENTD_A__B", "10", 10),
        ("AGENTD_A__B", "true", True),
        ("AGENTD_A__B", '["a", "b"]', ["a", "b"]),
        ("AGENTD_A__B", '"10"', "10"),
        ("AGENTD_A__B", "a b", "a b"),
        ("AGENTD_A__B", "1\nc = 2", "1\nc = 2"),
        ("AGENTD_A__B", "[" * 5000, "[" * 5000),
    ],
)
def test_a_value_is_toml_or_else_text(variable: str, value: str, expected: object) -> None:
    assert overrides_in({variable: value}, {})[0].value == expected


def test_other_variables_and_empty_ones_set_nothing(load: Any) -> None:
    config = load(
        "",
        AGENTD_CONFIG="x",
        AGENTD_STATE="y",
        AGENTD_LONGEST_SLEEP="1",
        AGENTD_WATCH_SECONDS="1",
        AGENTD_LOG__LEVEL="",
        MY_AGENTD_LOG__LEVEL="debug",
    )
    assert config.overrides == ()
    assert config == load("")


def test_faults_name_the_variable(load: Any) -> None:
    (fault,) = faults_of(load, "", AGENTD_LOG__LEVL="debug")
    assert fault == (
        "the environment: AGENTD_LOG__LEVL: unknown key (it sets log.levl of config.toml) "
        '(found "debug"); did you mean "level"?'
    )
    (fault,) = faults_of(load, "", AGENTD_LOGS__LEVEL="debug")
    assert fault.startswith("the environment: AGENTD_LOGS__LEVEL: unknown key")
    (fault,) = faults_of(load, "", AGENTD_PROVIDERS__LOCAL='{ kind = "open_source", model = "7b" }')
    assert "AGENTD_PROVIDERS__LOCAL: is missing" in fault
    assert "(it sets providers.local.base_url of config.toml)" in fault
    assert "config.toml" in faults_of(load, '[log]\nkeep = "x"\n', AGENTD_LOG__LEVEL="debug")[0]
    (fault,) = faults_of(load, CLAUDE, AGENTD_PROVIDERS__CLOD__MODEL="x")
    assert fault.startswith(
        "the environment: AGENTD_PROVIDERS__CLOD__MODEL: config.toml has no [providers.clod]: "
        "providers.clod.kind is missing"
    )
    (fault,) = faults_of(load, "", AGENTD_LOG__KEEP="3", AGENTD_LOG__LEVEL="x")
    assert fault.startswith("the environment: AGENTD_LOG__LEVEL: expected")
    (fault,) = faults_of(load, "", AGENTD__PROVIDER__MODEL="x", AGENTD__PROVIDER="offline")
    assert fault.startswith("the environment: AGENTD__PROVIDER__MODEL: provider is no table")


def test_a_missing_key_names_the_variable_of_its_table(load: Any) -> None:
    (fault,) = faults_of(
        load,
        "",
        AGENTD_PROVIDERS__A__KIND="claude",
        AGENTD_PROVIDERS__A__MODEL="m",
        AGENTD_PROVIDERS__B__MODEL="m",
    )
    assert fault.startswith(
        "the environment: AGENTD_PROVIDERS__B__MODEL: config.toml has no [providers.b]: "
        "providers.b.kind is missing"
    )


def test_a_key_in_a_variable_is_not_repeated_and_needs_no_private_file(load: Any) -> None:
    config = load(CLAUDE, AGENTD_PROVIDERS__MY_CLAUDE__API_KEY="sk-canary-0123456789abcdef")
    secret = config.secret("my-claude", {})
    assert secret is not None
    assert secret.get_secret_value() == "sk-canary-0123456789abcdef"
    faults = faults_of(
        load, CLAUDE, AGENTD_PROVIDERS__MY_CLAUDE__APIKEY="sk-canary-0123456789abcdef"
    )
    assert "canary" not in str(faults)
    assert "canary" not in repr(config)


class Settings(LiveConfig):
    """Settings that hold this config for good."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @property
    def config(self) -> Config:
        return self._config


async def test_a_variable_wins_over_what_agents_set_and_they_are_told(
    load: Any, tmp_path: Path
) -> None:
    overlay = '[log]\nlevel = "warning"\n'
    assert load("", overlay).log.level == "warning"
    config = load("", overlay, AGENTD_LOG__LEVEL="debug")
    assert config.log.level == "debug"

    async def reload() -> None:
        raise AssertionError("nothing was changed")

    tool = Overlay(file=tmp_path / "overlay.toml", settings=Settings(config), reload=reload)
    with pytest.raises(ToolFailed, match="set by the environment variable AGENTD_LOG__LEVEL"):
        await tool.set("log.level", "error")
    assert (tmp_path / "overlay.toml").read_text() == overlay


async def test_a_change_that_is_taken_back_takes_no_other_with_it(
    load: Any, tmp_path: Path
) -> None:
    reloads: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def reload() -> None:
        reload_end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await reloads.put(reload_end)
        await reload_end

    tool = Overlay(file=tmp_path / "overlay.toml", settings=Settings(load("")), reload=reload)
    async with asyncio.TaskGroup() as tasks:
        refused = tasks.create_task(_explain_failure(tool.set("agent.name", "Foo")))
        reload_end = await reloads.get()
        tasks.create_task(tool.set("log.level", "error"))
        for _ in range(3):
            await asyncio.sleep(0)  # the second change begins, as far as the first one lets it
        reload_end.set_exception(ConfigError(Fault(file="x", key="", found="", problem="broken")))
        (await reloads.get()).set_result(None)
    assert "nothing was changed" in refused.result()
    assert (tmp_path / "overlay.toml").read_text() == '[log]\nlevel = "error"\n'


async def _explain_failure(change: Awaitable[Any]) -> str:
    with pytest.raises(ToolFailed) as failure:
        await change
    return str(failure.value)


@pytest.mark.parametrize("key", ["agent.name.F", "agent.name.F.deeper", "agent.nobody", "log"])
async def test_an_agent_is_told_that_nobody_wrote_a_setting(
    load: Any, tmp_path: Path, key: str
) -> None:
    overlay = '[agent]\nname = "Foo"\n'
    config = load("", overlay)

    async def reload() -> None:
        raise AssertionError("nothing was changed")

    tool = Overlay(file=tmp_path / "overlay.toml", settings=Settings(config), reload=reload)
    with pytest.raises(ToolFailed, match=f"no agent has written {key}"):
        await tool.reset(key)
    assert (tmp_path / "overlay.toml").read_text() == overlay


def test_validate_names_the_variables_in_force(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("")
    (tmp_path / "policy.toml").write_text("version = 1\n")
    (tmp_path / "routines").mkdir()
    check_all(
        tmp_path / "config.toml", json=True, env={"AGENTD_LOG__LEVEL": "debug"}, state=tmp_path
    )
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert "the environment variable AGENTD_LOG__LEVEL sets log.level" in notes


def test_a_fault_beside_one_of_a_variable_keeps_its_line(load: Any) -> None:
    config = load("[log]\nlevel = 'info'\n", AGENTD_LOG__FORMAT="full")
    keys = ("log.level", "log.format")
    faults = [Fault(file=str(config.file), key=key, found="", problem="odd") for key in keys]
    located = [(fault.key, fault.line) for fault in config.with_lines(faults)]
    assert located == [("log.format", None), ("log.level", 2)]


_NAMES = st.from_regex(r"[A-Z0-9_]{1,12}", fullmatch=True)
_TOML = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.tuples(_NAMES, _NAMES), st.text(st.characters(codec="utf-8"))))
def test_whatever_the_variables_hold_a_config_or_faults_that_name_them_come_out(
    values: dict[tuple[str, str], str],
) -> None:
    env = {f"AGENTD_{table}__{key}": value for (table, key), value in values.items()}
    overrides = overrides_in(env, {"log": {}})
    try:
        apply_overrides({"log": {}}, overrides)
    except ConfigError as error:
        keys = {fault.key for fault in error.faults}
    else:
        keys = set()
    assert keys <= set(env)


@given(_TOML)
def test_a_value_written_as_toml_comes_out_as_it_was(value: Any) -> None:
    literal = tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
    if len(tomllib.loads(f"value = {literal}")) == 1:
        assert overrides_in({"AGENTD_A__B": literal}, {})[0].value == value
