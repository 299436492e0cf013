"""Channels whose extra is missing are reported by name, at validation and at delivery."""

import sys
from importlib import util

import pytest

from daemon.app.commands.validate import examine
from daemon.definitions.config.config import Config
from daemon.delivery.targets import Targets, find_missing_extra
from daemon.errors import ConfigError, DeliveryFailed
from daemon.telemetry.redaction import Secrets

MAIL, CHAT = (
    "mailtos://ada:s3cret@example.org",
    "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
)


@pytest.fixture
def plain_install(monkeypatch):
    """Nothing of an extra is there."""
    find = util.find_spec
    absent = {"apprise", "dbus_fast", "rich"}
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name in absent else find(name, *more),
    )
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)


def targets(workspace, **tables):
    config = Config.model_validate({"targets": tables})
    return Targets(config, workspace=workspace, env={}, secrets=Secrets())


def test_mail_needs_no_extra(plain_install, workspace):
    channels = targets(
        workspace, mail={"kind": "mail", "url": MAIL}, same={"kind": "apprise", "url": MAIL}
    )
    assert type(channels.channel("mail")) is type(channels.channel("same"))


def test_chat_and_desktop_channels_name_the_missing_extra(plain_install, workspace):
    with pytest.raises(
        ConfigError, match=r"targets\.chat\.kind.*pip install 'agentd-routines\[notify\]'"
    ) as error:
        targets(workspace, chat={"kind": "apprise", "url": CHAT})
    assert "TIiajkdn" not in str(error.value)
    if sys.platform != "darwin":
        with pytest.raises(ConfigError, match=r"pip install 'agentd-routines\[desktop\]'"):
            targets(workspace, inspector={"kind": "desktop"})


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS notifies by a program of its own")
async def test_a_notification_without_the_desktop_extra_is_a_permanent_failure(
    plain_install, workspace, delivery
):
    with pytest.raises(DeliveryFailed, match=r"agentd-routines\[desktop\]") as error:
        await targets(workspace).channel("desktop").send(delivery())
    assert not error.value.retry


def test_validate_lists_missing_extras(plain_install, tmp_path):
    (tmp_path / "routines").mkdir()
    (tmp_path / "config.toml").write_text('[targets.chat]\nkind = "apprise"\nurl_env = "CHAT"\n')
    (tmp_path / "policy.toml").write_text("version = 1\n")
    (tmp_path / "routines/daily.toml").write_text(
        '[run]\nprompt = "x"\n[[deliver]]\nto = "desktop"\n'
    )
    notes = examine(tmp_path / "config.toml", env={"CHAT": CHAT}, state=tmp_path / "state").notes
    assert any("targets.chat.kind" in note and "agentd-routines[notify]" in note for note in notes)
    desktop = [
        note
        for note in notes
        if "daily.toml:4: deliver[0].to" in note and "agentd-routines[desktop]" in note
    ]
    assert len(desktop) == (sys.platform != "darwin")


def test_validate_lists_no_installed_extra():
    assert (
        find_missing_extra("webhook")
        == find_missing_extra("file")
        == find_missing_extra("mail")
        == ""
    )
