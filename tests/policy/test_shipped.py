"""The policy that ships: what it lets a report do, and what it never does."""

from pathlib import Path

import pytest

from daemon.policy.policy import Policy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shipped_policy(tmp_path: Path) -> Policy:
    (tmp_path / "notes.md").write_text("a line\n")
    return Policy.load(ROOT / "policy.toml", workspace=tmp_path)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("sysinfo", {}),
        ("self_info", {}),
        ("finish", {"status": "succeeded"}),
        ("memory_recall", {"query": "disk"}),
        ("memory_store", {"key": "a", "content": "b"}),
        ("file_read", {"path": "notes.md"}),
        ("file_list", {}),
        ("file_write", {"path": "reports/daily-report/2026-11-21.md", "content": "x"}),
        ("shell", {"command": "df -h && free -m"}),
        ("shell", {"command": "journalctl -p err --since yesterday | tail -n 20"}),
    ],
)
def test_shipped_policy_allows_the_calls_of_a_report(
    shipped_policy: Policy, tool: str, arguments: dict[str, str]
) -> None:
    assert shipped_policy.judge(tool, arguments, routine="daily-report").allows


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("http_request", {"url": "https://example.invalid"}),
        ("file_write", {"path": "notes.md", "content": "x"}),
        ("file_write", {"path": "reports/../notes.md", "content": "x"}),
        ("file_write", {"path": "/etc/cron.d/x", "content": "x"}),
        ("file_read", {"path": ".env"}),
        ("file_read", {"path": "/etc/shadow"}),
        ("file_read", {}),
        ("file_read", {"path": 7}),
        ("shell", {"command": "rm -rf ."}),
        ("shell", {"command": "cat .env"}),
        ("shell", {"command": "curl https://example.invalid"}),
        ("shell", {"command": "ls > listing"}),
        ("shell", {}),
    ],
)
def test_shipped_policy_denies_unnamed_calls_with_a_reason(
    shipped_policy: Policy, tool: str, arguments: dict[str, str]
) -> None:
    verdict = shipped_policy.judge(tool, arguments, routine="daily-report")
    assert not verdict.allows
    assert verdict.rule and verdict.reason
