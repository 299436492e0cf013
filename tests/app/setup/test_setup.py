"""`agentd setup` against the fake vendor, by flags and at a terminal: what it writes, and that it
writes nothing where it fails.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tomllib
from pathlib import Path

import pytest

from daemon.app.setup.provider_choice import choose_by_url
from daemon.app.setup.running_daemon import IN_FORCE
from daemon.app.setup.vendors import Vendor, find_servers
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.testing import TestApp
from tests.acceptance.story import Home
from tests.app.setup.terminal import Terminal, terminal
from tests.delivery.receivers import Receiver
from tests.fakes.vendor import FakeVendor

SHIPPED = Path(__file__).parents[3] / "config.toml"
KEY = "sk-canary-0123456789abcdef"
MODELS = [{"id": "claude-haiku-4-5"}, {"id": "claude-opus-5-5"}]
TEXT_PAGE = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<html>hi</html>"


@pytest.fixture
def site(tmp_path: Path) -> Home:
    """A home with an edited config.toml, and no daemon."""
    home = Home(tmp_path)
    shutil.copy(SHIPPED, home.folder / "config.toml")
    home.write("key", f"{KEY}\n")
    return home


def contents(home: Home) -> dict[str, str]:
    return {path.name: path.read_text() for path in home.folder.iterdir() if path.is_file()}


async def setup(home: Home, *arguments: str):  # type: ignore[no-untyped-def]
    """Run `agentd setup` without a terminal."""
    return await home.run_process("agentd", "setup", *arguments, *home.places)


async def test_setup_finds_a_daemon_that_was_started_without_the_runtime_folder_of_this_shell(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.write("key", f"{KEY}\n")
    (tmp_path / "runtime").mkdir(mode=0o700)
    home.env |= {"AGENTD_STATE": str(home.state), "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    app = TestApp(home.folder)
    app.state = home.state
    async with FakeVendor(["Ready."]) as vendor, app, app.serve_api():
        vendor.models = MODELS
        result = await home.run_process(
            *("agentd", "setup", "--config", str(home.folder / "config.toml")),
            *("--provider", "claude", "--base-url", vendor.url),
            *("--model", "claude-haiku-4-5", "--key-file", "key"),
        )
        assert app.daemon.settings.config.provider == "claude", "before setup has ended"
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == IN_FORCE


async def test_a_daemon_that_refuses_the_reload_is_quoted_and_what_takes_a_restart_is_named(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    app = TestApp(home.folder)
    app.state = home.state
    flags = ("--target", "webhook", "--to", "http://127.0.0.1:9/hook", "--no-test")
    async with app, app.serve_api():
        policy = (home.folder / "policy.toml").read_text()
        home.write("policy.toml", "version = 3\n")
        result = await setup(home, *flags)
        assert (result.code, result.err) == (0, "")
        last_line = result.out.splitlines()[-1]
        assert "did not take it up, and goes on with what it has read before" in last_line
        assert "policy.toml" in last_line and last_line.endswith("agentctl reload")
        home.write("policy.toml", policy)
        config = (home.folder / "config.toml").read_text()
        home.write("config.toml", f"{config}\n[memory]\nmirror = true\n")
        result = await setup(home, *flags, "--target-name", "other")
    assert result.out.splitlines()[-1].startswith(
        f"{IN_FORCE} Restart agentd for this to count: memory"
    )


async def test_a_model_is_set_up_by_flags_alone(site: Home) -> None:
    before = (site.folder / "config.toml").read_text()
    async with FakeVendor(["I am ready.\nReally."]) as vendor:
        vendor.models = MODELS
        result = await setup(
            site,
            *("--provider", "claude", "--base-url", vendor.url),
            *("--model", "claude-haiku-4-5", "--key-file", "key"),
        )
    assert result.code == 0, result.err
    assert "It says: I am ready.  (" in result.out
    assert "provider.answered" not in result.out + result.err, "the log is no answer"
    assert f"start the daemon: agentd --config {site.folder}/config.toml" in result.out
    after = (site.folder / "config.toml").read_text()
    assert [line for line in before.splitlines() if line not in after.splitlines()] == [
        'provider = "offline"'
    ]
    assert tomllib.loads(after)["providers"] == {
        "claude": {
            "kind": "claude",
            "model": "claude-haiku-4-5",
            "base_url": vendor.url,
            "api_key_file": "claude.key",
        }
    }
    key_file = site.folder / "claude.key"
    assert (key_file.read_text(), key_file.stat().st_mode & 0o777) == (f"{KEY}\n", 0o600)
    config = load_config(site.folder / "config.toml")
    assert config.provider == "claude"
    assert KEY not in result.out + result.err + after


async def test_setup_prints_what_it_wrote_as_json_and_all_else_to_stderr(site: Home) -> None:
    async with FakeVendor(["I am ready."]) as vendor:
        vendor.models = MODELS
        result = await setup(
            site,
            "--json",
            *("--provider", "claude", "--base-url", vendor.url),
            *("--model", "claude-haiku-4-5", "--key-file", "key"),
            *("--target", "webhook", "--to", "http://127.0.0.1:9/hook-of-ada", "--no-test"),
            *("--routine", "backups", "--when", "weekdays at 9am", "--prompt", "Did they work?"),
        )
    assert result.code == 0, result.err
    output = json.loads(result.out)
    test_call = output["provider"].pop("test")
    assert (test_call["answer"], test_call["tokens"] > 0) == ("I am ready.", True)
    assert output == {
        "config": str(site.folder / "config.toml"),
        "provider": {
            "name": "claude",
            "kind": "claude",
            "model": "claude-haiku-4-5",
            "base_url": vendor.url,
            "api_key_file": "claude.key",
        },
        "target": {"name": "ops", "kind": "webhook", "url_file": "ops.url", "test": None},
        "routine": {"name": "backups", "when": "weekdays at 9am"},
    }
    assert "It says: I am ready." in result.err
    assert result.err.count("Next: ") == 1, "however many steps were taken"
    assert KEY not in result.out + result.err
    assert "hook-of-ada" not in result.out
    key_result = await setup(site, "--json", "--provider", "claude", "--key-file", "none")
    assert (key_result.code, key_result.out) == (5, "")


async def test_a_key_of_the_environment_goes_into_a_file(site: Home) -> None:
    site.env["OPENAI_API_KEY"] = KEY
    async with FakeVendor(["ready"]) as vendor:
        vendor.models = [{"id": "gpt-6-astra", "created": 1}]
        result = await setup(site, "--provider", "gpt", "--base-url", f"{vendor.url}/v1", "--yes")
    assert result.code == 0, result.err
    assert (site.folder / "openai.key").exists() is False
    assert (site.folder / "gpt.key").read_text() == f"{KEY}\n"
    assert KEY not in result.out + result.err


async def test_a_provider_of_the_same_name_is_replaced_only_if_that_is_said(site: Home) -> None:
    async with FakeVendor(["one", "two"]) as vendor:
        vendor.models = [{"id": "a"}, {"id": "b"}]
        flags = ("--provider", "mine", "--base-url", f"{vendor.url}/v1", "--yes")
        assert (await setup(site, *flags, "--model", "a")).code == 0
        old_contents = contents(site)
        result = await setup(site, *flags, "--model", "b")
        assert result.code == 5 and "--replace overwrites it" in result.err
        assert contents(site) == old_contents
        assert (await setup(site, *flags, "--model", "b", "--replace")).code == 0
    config = load_config(site.folder / "config.toml")
    assert config.providers["mine"].model == "b"
    text = (site.folder / "config.toml").read_text()
    assert text.count("[providers.mine]") == text.count("Written by") == 1


@pytest.mark.parametrize(
    ("flags", "saying"),
    [
        ((), "--provider is missing"),
        (("--yes",), "--provider is missing, and neither a key nor a server is here"),
        (("--provider", "claud"), "did you mean claude?"),
        (("--provider", "Mine"), "is no name"),
        (("--provider", "claude"), "--key-file FILE or --key-stdin (or $ANTHROPIC_API_KEY in"),
        (("--provider", "claude", "--key-file", "nowhere"), "--key-file nowhere: No such file"),
        (("--provider", "claude", "--key-file", "lines"), "gives several lines"),
        (("--provider", "claude", "--key-stdin"), "--key-stdin gives nothing"),
        (("--provider", "claude", "--key-file", "spaces"), "a character that no key has"),
        (("--provider", "x", "--base-url", "ftp://x"), "--base-url is no address"),
        (("--target", "smtp"), "; such as --to ada@example.org"),
        (("--target", "smtp", "--to", "a@example.org"), "; such as --smtp mail.example.org:587"),
    ],
)
async def test_without_a_terminal_a_missing_answer_names_its_flag(
    site: Home, flags: tuple[str, ...], saying: str
) -> None:
    site.write("lines", f"{KEY}\n{KEY}\n")
    site.write("spaces", "a key\n")
    before = contents(site)
    result = await setup(site, *flags)
    assert result.code == 2
    [line] = result.err.splitlines()
    assert saying in line and line.endswith("; nothing was changed")
    assert KEY not in line
    assert contents(site) == before


@pytest.mark.parametrize(
    ("turn", "saying"),
    [
        ({"error": 401, "message": f"no such key {KEY}"}, "the key was refused"),
        ({"error": 402, "message": "top up"}, "no balance"),
        ({"raw": "<html><title>Log in</title></html>"}, "a web page titled “Log in”"),
        ({"error": 400, "message": "\x1b[2Jgone"}, "[2Jgone"),
        ({"reset": True}, "broke off"),
    ],
)
async def test_a_test_call_that_fails_changes_nothing(
    site: Home, turn: dict[str, object], saying: str
) -> None:
    before = contents(site)
    async with FakeVendor([turn]) as vendor:
        vendor.models = MODELS
        flags = ("--provider", "claude", "--base-url", vendor.url, "--key-file", "key", "--yes")
        result = await setup(site, *flags)
    assert result.code == 1
    assert saying in result.err and result.err.endswith("; nothing was changed\n")
    assert KEY not in result.err and "\x1b" not in result.err
    assert contents(site) == before


async def test_a_refused_key_is_told_before_a_model_is_chosen(site: Home) -> None:
    site.write("key", "wrong")
    async with FakeVendor([]) as vendor:
        flags = ("--provider", "claude", "--base-url", vendor.url, "--key-file", "key")
        result = await setup(site, *flags)
    assert result.code == 1 and "the key was refused" in result.err


async def test_a_model_that_the_vendor_does_not_list_is_refused(site: Home) -> None:
    async with FakeVendor([]) as vendor:
        vendor.models = [*MODELS, {"id": "evil\x1b[2J"}]
        flags = ("--provider", "claude", "--base-url", vendor.url, "--key-file", "key")
        result = await setup(site, *flags, "--model", "claude-haiku-4")
        model_result = await setup(site, *flags, "--model", "evil\x1b[2J")
    assert result.code == 2
    assert "lists no model 'claude-haiku-4' for this key; did you mean claude-haiku-4-5" in (
        result.err
    )
    assert model_result.code == 2 and "\x1b" not in model_result.err


async def test_an_unlisted_model_is_answered_with_those_there_are_and_no_word_of_a_key(
    site: Home,
) -> None:
    async with FakeVendor([]) as vendor:
        vendor.models = [{"id": f"qwen-{number}"} for number in range(20)]
        flags = ("--provider", "mine", "--base-url", f"{vendor.url}/v1")
        result = await setup(site, *flags, "--model", "zzz")
    assert result.code == 2
    assert "mine lists no model 'zzz'; it lists qwen-0, qwen-1, " in result.err
    assert " and 12 more; nothing was changed" in result.err


async def test_a_provider_may_be_added_beside_the_one_that_answers(site: Home) -> None:
    async with FakeVendor(["ready", "ready"]) as vendor:
        vendor.models = [{"id": "a"}]
        url = f"{vendor.url}/v1"
        first = await setup(site, "--provider", "one", "--base-url", url, "--yes")
        flags = ("--provider", "two", "--base-url", url, "--yes", "--keep-default")
        second = await setup(site, *flags)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert '[providers.two] and provider = "one", as before.' in second.out
    config = load_config(site.folder / "config.toml")
    assert (config.provider, set(config.providers)) == ("one", {"one", "two"})


@pytest.mark.parametrize("count", [20_000, 100_000])
async def test_a_long_list_of_models_is_no_flood(site: Home, count: int) -> None:
    before = contents(site)
    async with FakeVendor(["ready"]) as vendor:
        vendor.models = [{"id": f"model-{number}", "created": 5} for number in range(count)]
        url = f"{vendor.url}/v1"
        flags = ("--provider", "many", "--base-url", url, "--key-file", "key", "--yes")
        result = await setup(site, *flags)
    assert len(result.out + result.err) < 1500
    if count == 20_000:
        assert result.code == 0, result.err
        config = load_config(site.folder / "config.toml")
        assert config.providers["many"].model == "model-19999"
    else:
        assert "the list of its models holds more than" in result.err
        assert (result.code, contents(site)) == (1, before)


async def test_a_server_that_lists_no_models_is_asked_all_the_same(site: Home) -> None:
    async with FakeVendor(["ready", "ready"]) as vendor:
        flags = ("--provider", "mine", "--base-url", f"{vendor.url}/v1")
        setup_result = await setup(site, *flags)
        result = await setup(site, *flags, "--model", "any")
    assert setup_result.code == 2 and "--model is missing" in setup_result.err
    assert result.code == 0, result.err


@pytest.mark.parametrize(("path", "code"), [("", 1), ("/", 1), ("/v1", 2)])
async def test_an_address_that_lacks_its_path_is_named_with_the_one_to_try(
    site: Home, path: str, code: int
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    before = contents(site)
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        result = await setup(site, "--provider", "mine", "--base-url", url + path, "--yes")
    hint = f'try base_url = "{url}/v1"'
    assert (hint in " ".join(result.err.split())) == (code == 1), result.err
    assert (result.code, contents(site)) == (code, before)


async def test_a_local_model_costs_nothing_so_that_caps_in_dollars_hold(site: Home) -> None:
    async with FakeVendor(["I am ready."]) as vendor:
        vendor.models = [{"id": "qwen3:8b"}]
        result = await setup(
            site,
            *("--provider", "ollama", "--base-url", f"{vendor.url}/v1"),
            *("--model", "qwen3:8b", "--key-file", "key"),
        )
    assert result.code == 0, result.err
    table = tomllib.loads((site.folder / "config.toml").read_text())["providers"]["ollama"]
    assert table["price"] == {"input": 0, "output": 0}


async def test_an_ollama_without_models_is_answered_with_the_command_that_gets_one(
    site: Home,
) -> None:
    before = contents(site)
    async with FakeVendor([]) as vendor:
        vendor.models = []
        base_url = ("--base-url", f"{vendor.url}/v1")
        result = await setup(site, "--provider", "ollama", *base_url, "--yes")
    assert (result.code, contents(site)) == (5, before)
    assert "Ollama has no models yet; get one, and try again: ollama pull " in result.err


async def test_local_servers_are_asked_at_once_and_briefly(unused_address: str) -> None:
    """A list, a list without models, a web page, one that never answers, a closed port."""
    async with (
        FakeVendor([]) as full,
        FakeVendor([]) as empty,
        Receiver(TEXT_PAGE).open() as page,
        Receiver(None).open() as hanging_receiver,
    ):
        full.models = [{"id": "a"}, {"id": "b\x07"}]
        urls = (full.url, empty.url, page.url, hanging_receiver.url, f"http://{unused_address}")
        servers = [
            Vendor(name=f"s{number}", title="", kind="open_source", base_url=f"{url}/v1")
            for number, url in enumerate(urls)
        ]
        async with asyncio.timeout(60):
            servers_found = await find_servers(servers, timeout=5)
    assert [(server.name, count) for server, count in servers_found] == [("s0", 1), ("s1", 0)]


async def test_a_new_installation_gets_the_shipped_files(tmp_path: Path) -> None:
    home = Home(tmp_path)
    shutil.rmtree(home.folder)
    (home.folder).mkdir()
    async with FakeVendor(["ready"]) as vendor:
        vendor.models = MODELS
        flags = ("--provider", "mine", "--base-url", f"{vendor.url}/v1", "--model", MODELS[0]["id"])
        result = await home.run_process(
            "agentd", "setup", *flags, "--key-stdin", "--state", str(home.state)
        )
        assert result.code == 2 and not (tmp_path / ".config").exists()
        home.write("key", KEY)
        result = await home.run_process(
            "agentd", "setup", *flags, "--key-file", "key", "--state", str(home.state)
        )
    assert result.code == 0, result.err
    config = load_config(tmp_path / ".config/agentd/config.toml")
    assert (config.provider, config.providers["mine"].api_key_file) == ("mine", "mine.key")
    assert f"wrote {tmp_path}/.config/agentd/config.toml: the settings, as shipped" in result.out


# --- at a terminal


async def begin(screen: Terminal) -> None:
    await screen.shows("Which model shall write the reports?")
    await screen.shows("Enter for ")


async def test_questions_at_a_terminal_lead_to_a_model(site: Home) -> None:
    async with FakeVendor(["I am ready."]) as vendor:
        vendor.models = [*MODELS, {"id": "claude-embed-1"}]
        flags = ("setup", "--base-url", vendor.url, *site.places)
        async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
            await begin(screen)
            screen.type("99\n")
            await screen.shows("A number from 1 to")
            screen.type("claude\n")
            await screen.shows("The key of Anthropic (it stays unseen):")
            screen.type(f"{KEY}\n")
            await screen.shows("of the 3 that Anthropic lists")
            screen.type("?\n")
            await screen.shows("claude-haiku-4-5")
            screen.type("claude-haiku\n")
            await screen.shows("did you mean claude-haiku-4-5")
            screen.type("claude-haiku-4-5\n")
            await screen.shows("It says: I am ready.")
            await screen.shows('provider = "claude".')
            assert KEY not in screen.text
    assert load_config(site.folder / "config.toml").provider == "claude"


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
@pytest.mark.parametrize("question", ["provider", "key", "model"])
async def test_leaving_a_question_changes_nothing_and_says_so(
    site: Home, question: str, key: str
) -> None:
    before = contents(site)
    async with FakeVendor([]) as vendor:
        vendor.models = MODELS
        flags = ("setup", "--base-url", vendor.url, *site.places)
        async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
            await begin(screen)
            if question != "provider":
                screen.type("claude\n")
                await screen.shows("(it stays unseen):")
            if question == "model":
                screen.type(f"{KEY}\n")
                await screen.shows("Enter for 1:")
            screen.type(key)
            await screen.shows("stopped: nothing was changed")
            assert await screen.end() == 130
            assert "Traceback" not in screen.text
    assert contents(site) == before


async def test_at_the_menu_a_url_is_a_server_of_ones_own_and_a_name_of_the_config_keeps_its_address(
    site: Home,
) -> None:
    async with FakeVendor(["One.", "Two."]) as vendor:
        vendor.models = [{"id": "qwen3:8b"}]
        flags = ("setup", *site.places)
        async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
            await begin(screen)
            screen.type("claud\n")
            await screen.shows("There is no claud; did you mean claude?")
            screen.type(f"{vendor.url}\n")  # without its path, as people copy it
            await screen.shows("Its key, if it wants one (it stays unseen); Enter for none:")
            screen.type(f"{KEY}\n")
            await screen.shows("Which one? A number; Enter for 1:")
            screen.type("\n")
            await screen.shows("It says: One.")
            await screen.shows("by mail, chat or phone, too? [y/N]")
            screen.type("\x03")
            await screen.end()
        config = load_config(site.folder / "config.toml")
        assert (config.provider, config.providers["local"].base_url) == (
            "local",
            f"{vendor.url}/v1",
        )
        vendor.models.append({"id": "qwen4:8b"})
        async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
            await screen.shows("1  local ")
            await screen.shows("in config.toml: qwen3:8b at 127.0.0.1")
            await screen.shows("local2 ")
            await screen.shows("another server that speaks the OpenAI API")
            await screen.shows("Enter for 1:")
            screen.type("\n")
            await screen.shows("Which one?")
            screen.type("qwen4:8b\n")
            await screen.shows("It says: Two.")
            await screen.shows("[y/N]")
            screen.type("\x03")
            await screen.end()
    provider = load_config(site.folder / "config.toml").providers["local"]
    assert (provider.model, provider.base_url) == ("qwen4:8b", f"{vendor.url}/v1")
    assert provider.api_key_file == "local.key"


async def test_at_the_menu_an_own_name_asks_for_the_url_and_a_known_one_needs_none(
    site: Home, unused_address: str
) -> None:
    before = contents(site)
    flags = ("setup", *site.places)
    async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
        await begin(screen)
        screen.type("local\n")
        await screen.shows("Its URL, such as http://127.0.0.1:8080/v1:")
        screen.type("nothing\n")
        await screen.shows("'nothing' is no URL")
        screen.type(f"http://{unused_address}/v1\n")
        await screen.shows("Enter for none:")
        screen.type("\n")
        await screen.shows("nothing was changed")
        assert await screen.end() == 1
    assert contents(site) == before


async def test_q_at_the_menu_goes_on_without_a_model(site: Home) -> None:
    before = contents(site)
    async with terminal("setup", *site.places, env=site.env, cwd=site.folder) as screen:
        await begin(screen)
        screen.type("q\n")
        await screen.shows("No model was set up")
        assert await screen.end() == 0
    assert contents(site) == before


@pytest.mark.parametrize(
    ("url", "name", "base_url"),
    [
        ("http://127.0.0.1:8123", "local", "http://127.0.0.1:8123/v1"),
        ("http://localhost:8123/v1/", "local", "http://localhost:8123/v1"),
        ("https://api.acme.com/v1", "acme", "https://api.acme.com/v1"),
        ("http://127.0.0.1:11434/v1", "ollama", "http://127.0.0.1:11434/v1"),
        ("https://api.mistral.ai/v1", "mistral", "https://api.mistral.ai/v1"),
        ("https://eu.mistral.ai/v1", "mistral2", "https://eu.mistral.ai/v1"),
    ],
)
def test_a_pasted_url_is_a_vendor_that_is_known_or_gets_a_name(
    url: str, name: str, base_url: str
) -> None:
    vendor = choose_by_url(url, Config(), {}).vendor
    assert (vendor.name, vendor.base_url) == (name, base_url)


async def test_a_model_of_a_configured_server_is_replaced_without_its_address(site: Home) -> None:
    async with FakeVendor(["one", "two"]) as vendor:
        vendor.models = [{"id": "a"}, {"id": "b"}]
        url = f"{vendor.url}/v1"
        await setup(site, "--provider", "mine", "--base-url", url, "--model", "a")
        result = await setup(site, "--provider", "mine", "--model", "b")
        assert result.code == 5 and "--replace overwrites it" in result.err
        result = await setup(site, "--provider", "mine", "--model", "b", "--replace")
    assert result.code == 0, result.err
    provider = load_config(site.folder / "config.toml").providers["mine"]
    assert (provider.model, provider.base_url) == ("b", url)
