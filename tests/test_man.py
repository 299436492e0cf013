"""The manual pages are those of this version, and roff without mistakes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from daemon.cli.verbs import AGENTD_VERBS, VERBS
from tests.man import FOLDER, agentctl_page, agentd_page, escape, pages


def test_the_pages_are_current() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(pages())
    for path, text in pages().items():
        assert path.read_text("utf-8") == text, "run `python -m tests.man`"


@pytest.mark.slow
def test_every_verb_has_a_paragraph() -> None:
    assert all(f"\n.B {escape(name)}" in agentctl_page() for name in VERBS)
    assert all(f"\n.B {escape(name)}" in agentd_page() for name in AGENTD_VERBS)


def test_options_of_verbs_that_need_no_daemon_are_listed() -> None:
    page = agentctl_page()
    for option in ("--run ID", "--since TIME", "--definitions DIR", "--expand N", "--routine R"):
        assert f"\n.B {escape(option)}\n" in page


def test_no_text_becomes_a_request() -> None:
    assert escape(".x\n'y\\-z") == "\\&.x\n\\&'y\\e\\-z"


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_groff_has_nothing_to_say_about_them() -> None:
    for path in pages():
        command = ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert result.stderr == "" and "daemon" in result.stdout
