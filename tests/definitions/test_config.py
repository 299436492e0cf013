"""The keys of config.toml, and where API keys come from."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import CALLS_A_PERSON, PROVIDER_KINDS, TargetConfig
from daemon.errors import ConfigError
from daemon.providers import KINDS as REAL_KINDS
from tests.definitions import without_place

CANARY = "sk-canary-0123456789abcdef"
CLAUDE = '[providers.claude]\nkind = "claude"\nmodel = "m"\n'


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Write a config file, mode 0600, and load it."""

    def load(text: str, mode: int = 0o600) -> Config:
        path = tmp_path / "config.toml"
        path.write_text(text)
        path.chmod(mode)
        return load_config(path)

    return load


def lines_of(call: Any, *arguments: Any, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        call(*arguments, **more)
    return [without_place(fault) for fault in error.value.faults]


# --- the file


def test_an_empty_config_uses_no_model(load: Any) -> None:
    config = load("")
    assert config.provider == "offline"
    assert config.provider_config("offline").kind == "offline"
    assert config.provider_names == {"offline"}
    assert config.secret("offline", {}) is None


def test_paths_are_relative_to_the_config_file_not_the_working_directory(
    load: Any, tmp_path: Path
) -> None:
    config = load('routines = "r"\npolicy = "/etc/p.toml"\nworkspace = "w"')
    assert config.routines_path == tmp_path / "r"
    assert config.policy_path == Path("/etc/p.toml")
    assert config.workspace_path(Path("/state")) == tmp_path / "w"
    assert load("").workspace_path(Path("/state")) == Path("/state/workspace")
    assert load('workspace = "~/w"').workspace_path(Path("/state")) == Path.home() / "w"


def test_every_table_is_read(load: Any) -> None:
    config = load(
        'provider = "claude"\ntimezone = "Asia/Shanghai"\n[agent]\nlanguage = "zh"\nname = "Ada"\n'
        '[daemon]\ngrace = "5s"\nmax_concurrent = 9\n[log]\nlevel = "debug"\nmax_mb = 1\nkeep = 2\n'
        + CLAUDE
        + 'timeout = "90s"\ntemperature = 0.3\n[providers.claude.capabilities]\ntools = false\n'
        + '[providers.test]\nkind = "scripted"\nreplies = ["a", { text = "b" }]\n'
    )
    assert config.agent.language == "zh"
    assert config.daemon.grace == timedelta(seconds=5)
    assert config.log.keep == 2
    assert config.provider_config("claude").timeout == timedelta(seconds=90)
    assert config.provider_config("claude").capabilities == {"tools": False}
    assert config.provider_config("test").replies == ("a", {"text": "b"})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            'provider = "cluade"\n' + CLAUDE,
            'provider: no such provider in [providers] (found "cluade"); did you mean "claude"?',
        ),
        (
            '[providers.a]\nkind = "claude"',
            "providers.a.model: is missing; kind claude needs the name of a model",
        ),
        (
            '[providers.a]\nkind = "claude"\nmodel = "…"',
            (
                "providers.a.model: still has the … of the example; name a model as the vendor "
                "writes it; `agentctl setup` proposes some"
            ),
        ),
        (
            '[provider.a]\nkind = "claude"\nmodel = "m"',
            "provider: expected text in quotes (found a table); write [providers.a]",
        ),
        (
            '[providers.a]\nkind = "open_source"\nmodel = "m"',
            (
                "providers.a.base_url: is missing; kind open_source needs the server's address; "
                'Ollama: base_url = "http://127.0.0.1:11434/v1"'
            ),
        ),
        (
            '[providers.a]\nkind = "opensource"\nmodel = "m"',
            (
                'providers.a.kind: expected "openai", "claude", "minimax", "open_source", "command", "offline" '  # noqa: E501
                ""
                'or "scripted" '
                '(found "opensource"); did you mean "open_source"?'
            ),
        ),
        (
            "[providers.a]",
            (
                'providers.a.kind: is missing; one of "openai", "claude", "minimax", '
                '"open_source", "command", "offline", "scripted"'
            ),
        ),
        ('[chat.a]\ntoken_file = "t"\nallow = [1]', 'chat.a.kind: is missing; one of "telegram"'),
        (
            "[providers]\na = 1",
            (
                "providers.a: expected a table of keys and values (found 1); write [providers.a], "
                "and its keys below"
            ),
        ),
        (
            "[ask]\ntools = 'shell'",
            'ask.tools: expected a list, like ["a", "b"] (found "shell"); write ["shell"]',
        ),
        ('provider = ["a"]', 'provider: expected text in quotes (found ["a"]); write "a"'),
        (
            '[providers."A b"]\nkind = "offline"',
            'providers."A b": a provider\'s name is made of a-z, 0-9, - and _ (found "A b")',
        ),
        (
            '[providers.a]\nkind = "offline"\nregion = "cn"',
            'providers.a.region: only kind minimax takes it (found "cn")',
        ),
        (
            '[providers.a]\nkind = "open_source"\nmodel = "m"\nbase_url = "localhost:11434"',
            (
                'providers.a.base_url: expected an address, like "http://127.0.0.1:11434/v1" (found '  # noqa: E501
                ""
                '"localhost:11434")'
            ),
        ),
        (CLAUDE + "temperature = 3", "providers.claude.temperature: must be at most 2.0 (found 3)"),
        (CLAUDE + 'api_key = ""', 'providers.claude.api_key: must not be empty (found "")'),
        (
            CLAUDE + 'max_tokens = "many"',
            'providers.claude.max_tokens: expected a whole number, like 10 (found "many")',
        ),
        (
            'timezone = "Europe/Belin"',
            'timezone: unknown time zone (found "Europe/Belin"); did you mean "Europe/Berlin"?',
        ),
        (
            'timezone = "Beijing"',
            'timezone: unknown time zone (found "Beijing"); did you mean "Asia/Shanghai"?',
        ),
        # another zone, and one on the other side of Greenwich, would only look like it
        *(
            (
                f'timezone = "{name}"',
                f'timezone: unknown time zone (found "{name}"); zones look like "Europe/Berlin"',
            )
            for name in ("CEST", "PST", "GMT+1")
        ),
        *(
            (
                f'[listen]\naddress = "{address}"',
                (
                    'listen.address: expected an address and a port, like "127.0.0.1:9464" (found '
                    f'"{address}"){hint}'
                ),
            )
            for address, hint in (
                ("127.0.0.1:99999", ""),
                ("999.1.1.1:80", ""),
                ("9464", ""),
                ("localhost:9464", '; write "127.0.0.1" for localhost'),
            )
        ),
        # a kind that is not known makes no fault of other keys
        (
            '[targets.tg]\nkind = "telegram"\nurl = "tgram://x/y"',
            (
                'targets.tg.kind: expected "mail", "apprise", "webhook", "ping", "desktop", "file" '
                'or "log" (found "telegram"); did you mean "apprise"?'
            ),
        ),
        (
            '[hooks.senders.s]\nkind = "strip"\nsecret_file = "x"\ntolerance = "1m"',
            (
                'hooks.senders.s.kind: expected "standard", "github", "gitlab" or "stripe" (found '
                '"strip"); did you mean "stripe"?'
            ),
        ),
        (
            '[search]\nkind = "tavily"\napi_key_file = 5',
            'search.api_key_file: expected text in quotes (found 5); write "5"',
        ),
        (
            '[mcp.time]\ncommand = "uvx mcp-server-time"',
            (
                'mcp.time.command: expected a list, like ["a", "b"] (found "uvx mcp-server-time"); '
                'write ["uvx", "mcp-server-time"]'
            ),
        ),
        (
            '[digest]\nat = "8:00"',
            'digest.at: expected a time of the day, like "08:00" (found "8:00")',
        ),
        ('[log]\nlevel = "warn"', None),
        ("[daemon]\nmax_concurrent = 0", "daemon.max_concurrent: must be at least 1 (found 0)"),
        ("[listen]\nport = 80", None),
        ('user_name = "x"', 'user_name: unknown key (found "x"); it belongs in [agent]'),
    ],
)
def test_config_fault_is_reported_with_its_correction(
    load: Any, text: str, line: str | None
) -> None:
    (secret,) = lines_of(load, text)
    assert secret == line if line else secret


def test_an_empty_key_is_an_unknown_key(load: Any) -> None:
    assert len(lines_of(load, '"" = ""')) == 1


def test_all_faults_of_the_config_come_together(load: Any) -> None:
    lines = lines_of(
        load, 'provider = "x"\ntimezon = "UTC"\n[log]\nlevel = 3\n[providers.a]\nkind = "claude"'
    )
    assert [line.partition(":")[0] for line in lines] == [
        "provider",
        "timezon",
        "log.level",
        "providers.a.model",
    ]


def test_a_provider_with_a_broken_table_still_has_its_name(load: Any) -> None:
    (line,) = lines_of(load, 'provider = "a"\n[providers.a]\nkind = "claude"\nmodel = 3')
    assert line.startswith("providers.a.model: expected text")


def test_config_kinds_equal_provider_kinds() -> None:
    assert set(PROVIDER_KINDS) == set(REAL_KINDS)


# --- keys


def test_api_key_is_looked_up_in_the_safest_place_first(load: Any, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "claude").write_text(CANARY + "-credential\n")
    file = tmp_path / "claude.key"
    file.write_text(CANARY + "-file\n")
    file.chmod(0o600)
    config = load(
        CLAUDE + f'api_key_file = "claude.key"\napi_key_env = "MY_KEY"\napi_key = "{CANARY}-inline"'
    )
    env = {"CREDENTIALS_DIRECTORY": str(credentials), "MY_KEY": CANARY + "-env"}

    def find_secret() -> str:
        return str(config.secret("claude", env).get_secret_value()).removeprefix(CANARY)

    assert find_secret() == "-credential"
    (credentials / "claude").unlink()
    assert find_secret() == "-file"
    config = load(CLAUDE + f'api_key_env = "MY_KEY"\napi_key = "{CANARY}-inline"')
    assert find_secret() == "-env"
    env.clear()
    assert find_secret() == "-inline"


def test_missing_api_key_is_one_fault_naming_where_to_put_the_key(load: Any) -> None:
    config = load(CLAUDE)
    (line,) = lines_of(config.secret, "claude", {})
    assert line == (
        'providers.claude: has no API key; add api_key_file = "…" (a file of yours with mode 0600), '  # noqa: E501
        ""
        'or api_key_env = "ANTHROPIC_API_KEY", or with systemd LoadCredential=claude:…'
    )


def test_environment_key_is_mentioned_but_used_only_if_configured(load: Any) -> None:
    (line,) = lines_of(load(CLAUDE).secret, "claude", {"ANTHROPIC_API_KEY": CANARY})
    assert 'api_key_env = "ANTHROPIC_API_KEY" (it is set)' in line
    assert "canary" not in line


@pytest.mark.parametrize("kind", ["openai", "claude", "minimax"])
def test_vendor_requires_a_key_and_local_server_does_not(load: Any, kind: str) -> None:
    text = f'[providers.a]\nkind = "{kind}"\nmodel = "m"\n'
    assert len(lines_of(load(text).secret, "a", {})) == 1
    assert load(text + 'base_url = "http://127.0.0.1:1"').secret("a", {}) is None


def test_an_unset_environment_variable_is_named(load: Any) -> None:
    (line,) = lines_of(load(CLAUDE + 'api_key_env = "MY_KEY"').secret, "claude", {})
    assert line == (
        "providers.claude.api_key_env: the environment variable MY_KEY is not set; export it "
        "where agentd starts"
    )


def test_a_key_pasted_as_the_name_of_a_variable_or_file_is_not_repeated(load: Any) -> None:
    for key in ("api_key_env", "api_key_file"):
        assert "canary" not in "".join(
            lines_of(load(CLAUDE + f'{key} = "{CANARY}"').secret, "claude", {})
        )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_key_file_accessible_to_others_is_refused(load: Any, tmp_path: Path, mode: int) -> None:
    file = tmp_path / "my key"
    file.write_text(CANARY)
    file.chmod(mode)
    (line,) = lines_of(load(CLAUDE + 'api_key_file = "my key"').secret, "claude", {})
    assert f"others may read or write the key (mode {mode:04o})" in line
    assert f"chmod 600 '{file}'" in line


def test_a_config_with_an_api_key_must_be_private(load: Any) -> None:
    assert "chmod 600" in lines_of(load, CLAUDE + f'api_key = "{CANARY}"', mode=0o644)[0]
    assert load("", mode=0o644)


@pytest.mark.root
def test_a_key_file_of_another_user_is_refused(load: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(CANARY)
    file.chmod(0o600)
    os.chown(file, 65534, 65534)
    (line,) = lines_of(load(CLAUDE + 'api_key_file = "key"').secret, "claude", {})
    assert "belongs to another user (uid 65534)" in line


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file holds no key"),
        (b"a\nb\n", "the file holds more than one line"),
        (b"\xff\xfe", "not UTF-8 text"),
    ],
)
def test_key_file_without_a_key_is_a_fault(
    load: Any, tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    (line,) = lines_of(load(CLAUDE + 'api_key_file = "key"').secret, "claude", {})
    assert problem in line


def test_missing_key_file_is_a_fault(load: Any) -> None:
    (line,) = lines_of(load(CLAUDE + 'api_key_file = "./key"').secret, "claude", {})
    assert "no such file" in line


@pytest.mark.parametrize("secret", ["whsec_" + "a" * 40, "A" * 32 + "\n", "/+" * 30])
def test_the_secret_of_webhooks_is_read_from_its_file(
    load: Any, tmp_path: Path, secret: str
) -> None:
    (tmp_path / "hooks.secret").write_text(secret)
    (tmp_path / "hooks.secret").chmod(0o600)
    webhook_secret = load('[hooks]\nsecret_file = "hooks.secret"').hooks_secret()
    assert webhook_secret.get_secret_value() == secret.strip()
    assert load("").hooks_secret() is None


@pytest.mark.parametrize(
    "secret", ["whsec_c2hvcnQ=", "not base64, but a sentence that is long enough", "", "ü" * 40]
)
def test_an_invalid_webhook_secret_is_refused_with_a_command_to_make_one(
    load: Any, tmp_path: Path, secret: str
) -> None:
    (tmp_path / "hooks.secret").write_text(secret)
    (tmp_path / "hooks.secret").chmod(0o600)
    (line,) = lines_of(load('[hooks]\nsecret_file = "hooks.secret"').hooks_secret)
    assert line.startswith("hooks.secret_file: ")
    assert not secret or secret not in line


def test_a_webhook_secret_readable_by_others_is_refused(load: Any, tmp_path: Path) -> None:
    (tmp_path / "hooks.secret").write_text("whsec_" + "a" * 40)
    (tmp_path / "hooks.secret").chmod(0o644)
    (line,) = lines_of(load('[hooks]\nsecret_file = "hooks.secret"').hooks_secret)
    assert "chmod 600" in line


def test_an_api_key_cannot_be_printed(load: Any) -> None:
    config = load(CLAUDE + f'api_key = "{CANARY}"')
    for text in (
        repr(config),
        str(config),
        config.model_dump_json(),
        repr(config.secret("claude", {})),
    ):
        assert "canary" not in text


def test_embedder_with_missing_keys_is_a_fault_naming_the_keys(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('[memory]\nembedder = "openai_compatible"\nmodel = "m"\n')
    with pytest.raises(
        ConfigError, match=r"memory.base_url: is missing; embedder openai_compatible needs it"
    ):
        load_config(path)
    path.write_text('[memory]\nembedder = "onnx"\n')
    with pytest.raises(ConfigError, match=r"memory.model_file: is missing; embedder onnx needs it"):
        load_config(path)


def test_the_key_of_the_embedder_is_found_like_the_key_of_a_provider(tmp_path):
    path = tmp_path / "config.toml"
    text = '[memory]\nembedder = "openai_compatible"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
    path.write_text(text)
    assert load_config(path).memory_secret({}) is None
    path.write_text(text + 'api_key_env = "EMBED_KEY"\n')
    with pytest.raises(
        ConfigError, match=r"config.toml:5: memory.api_key_env: the environment variable EMBED_KEY"
    ):
        load_config(path).memory_secret({})
    secret = load_config(path).memory_secret({"EMBED_KEY": "abc"})
    assert secret is not None and secret.get_secret_value() == "abc"
    path.write_text(text + 'api_key = "abc"\n')
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"memory.api_key: others may read or write the key"):
        load_config(path)


WEBHOOK = '[targets.ops]\nkind = "webhook"\nurl = "https://example.org/hook"\n'


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ('[targets.mail]\nkind = "fax"', "targets.mail.kind:"),
        ('[targets."Big Mail"]\nkind = "log"', "a target's name is made of"),
        ('[targets.file]\nkind = "file"', "is there without being declared"),
        ('[targets.x]\nkind = "log"\nlimit = 5000', "targets.x.limit: only kind webhook takes it"),
        ('[targets.x]\nkind = "webhook"\nurl = "ftp://x"', "targets.x.url: expected an address"),
        (f'{WEBHOOK}url_env = "X"', "exclude one another"),
    ],
)
def test_fault_of_a_delivery_target_is_reported_with_its_place(
    tmp_path: Path, text: str, expected_text: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=re.escape(expected_text)):
        load_config(file)


def test_the_address_of_a_target_comes_from_a_credential_a_file_or_a_variable(
    tmp_path: Path,
) -> None:
    file, key, folder = tmp_path / "config.toml", tmp_path / "mail.url", tmp_path / "credentials"
    file.write_text(
        (  # noqa: UP034
            '[targets.mail]\nkind = "apprise"\nurl_file = "mail.url"\n[targets.b]\nkind = '
            '"apprise"\nurl_env = "B"'
        )
    )
    key.write_text("mailto://a:b@example.org\n")
    key.chmod(0o600)
    config = load_config(file)
    url = config.target_url("mail", {})
    assert url is not None and url.get_secret_value() == "mailto://a:b@example.org"
    folder.mkdir()
    (folder / "mail").write_text("mailto://other@example.org")
    url = config.target_url("mail", {"CREDENTIALS_DIRECTORY": str(folder)})
    assert url is not None and url.get_secret_value() == "mailto://other@example.org"
    assert config.target_url("b", {"B": "json://host"}) == SecretStr("json://host")
    with pytest.raises(
        ConfigError, match=r"targets\.b\.url_env: the environment variable it names is not set"
    ):
        config.target_url("b", {})
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read or write the key"):
        config.target_url("mail", {})


def test_a_config_with_a_secret_address_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[targets.mail]\nkind = "apprise"\nurl = "mailto://a:b@example.org"\n')
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"targets\.mail\.url: others may read or write"):
        load_config(file)
    file.chmod(0o600)
    assert "a:b" not in repr(load_config(file))


def test_a_signing_secret_is_one_of_standard_webhooks(tmp_path: Path) -> None:
    file, secret = tmp_path / "config.toml", tmp_path / "ops.secret"
    file.write_text(f'{WEBHOOK}secret_file = "ops.secret"')
    secret.write_text("hunter2")
    secret.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no secret of 24 bytes or more"):
        load_config(file).target_secret("ops", {})


def test_the_mark_that_windows_begins_a_text_with_is_no_part_of_a_key(
    load: Any, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"\xef\xbb\xbfabc\r\n")
    key.chmod(0o600)
    assert load(CLAUDE + 'api_key_file = "key"').secret("claude", {}) == SecretStr("abc")


def test_a_command_that_makes_a_secret_writes_into_its_file(load: Any, tmp_path: Path) -> None:
    secret = tmp_path / "my secret"
    secret.write_text("short")
    secret.chmod(0o600)
    config = load('[hooks]\nsecret_file = "my secret"\n')
    with pytest.raises(ConfigError, match=f"base64[)] > '{secret}'"):
        config.hooks_secret()
    config = load('[hooks.senders.a]\nkind = "gitlab"\nsecret_file = "my secret"\n')
    with pytest.raises(ConfigError, match=f"-hex 32 > '{secret}'"):
        config.sender_secrets()


def test_settings_of_agents_that_cannot_be_reached_are_none(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    # a name that is too long is refused by the system like a folder that may not be entered
    config = load_config(tmp_path / "config.toml", tmp_path / ("x" * 300) / "overlay.toml")
    assert config.overlay_error is None


def test_each_kind_of_target_is_known_to_call_a_person_or_not() -> None:
    kinds = get_args(TargetConfig.model_fields["kind"].annotation)
    assert CALLS_A_PERSON.keys() == set(kinds)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://[x]/", "http://", "http:///x", "http://a:99999/", "http://a:b/",
     "http://a b/", "http://:80/", "ftp://a/"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("table", "key"),
    [
        ('[providers.a]\nkind = "open_source"\nmodel = "m"\n', "providers.a.base_url"),
        ('[targets.a]\nkind = "webhook"\n', "targets.a.url"),
        ('[targets.a]\nkind = "ping"\n', "targets.a.url"),
        ("[mcp.a]\n", "mcp.a.url"),
        ('[search]\nkind = "searxng"\n', "search.base_url"),
    ],
)
def test_an_address_that_is_none_is_one_fault_with_its_line(
    tmp_path: Path, table: str, key: str, url: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'{table}{key.rpartition(".")[2]} = "{url}"\n')
    file.chmod(0o600)
    with pytest.raises(ConfigError) as error:
        load_config(file)
    (fault,) = error.value.faults
    assert (fault.key, fault.line) == (key, table.count("\n") + 1)
    assert fault.problem.startswith("expected an address")


@pytest.mark.parametrize("contact", ["", "Ada (me)", "ada@bücher.example", "a\\nb: c"])
def test_a_contact_that_a_header_does_not_take_is_refused(load: Any, contact: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(f'[search]\nkind = "wikipedia"\ncontact = "{contact}"\n')
    (fault,) = error.value.faults
    assert fault.key == "search.contact"
    assert fault.problem.startswith("expected a mail address")


@pytest.mark.parametrize(
    "url", ["http://[::1]:8080/v1", "https://ada:secret@example.org/?a=b", "http://localhost"]
)
def test_addresses_of_all_kinds_are_read(load: Any, url: str) -> None:
    config = load(f'[providers.a]\nkind = "open_source"\nmodel = "m"\nbase_url = "{url}"\n')
    assert config.provider_config("a").base_url == url
