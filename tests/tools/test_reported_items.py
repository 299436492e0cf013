"""Reported items are new once per routine, only if their run succeeded."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.models import (
    FunctionCall,
    Reply,
    ReportedItem,
    Status,
    Step,
    StepKind,
    ToolContext,
    digest_of,
    new_id,
)
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.store.seen_items import ReportedItemRecord
from daemon.tools.builtin import report_items
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from daemon.tools.reported_items import collect_items, item_key, normalize_url, report_new_items
from tests.empty_database import copy_empty_database
from tests.properties import scaled_settings

SETTINGS = scaled_settings(300)
NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)

WORDS = st.text("abzAZ09-._~%/?&=#:@[]\\ é中\t\n", max_size=30)
URLS = st.builds(
    "{}://{}{}{}{}".format,
    st.sampled_from(["http", "https", "HTTP", "Https", "ftp", "javascript"]),
    st.sampled_from(
        [
            "a.example",
            "A.EXAMPLE.",
            "u:P@a.example",
            "[::1]",
            "münchen.example",
            "",
            "a.example:80",
            "a:x",
        ]
    ),
    st.sampled_from(["", ":80", ":443", ":8080", ":", ":x"]),
    WORDS.map(lambda text: text and f"/{text}"),
    WORDS.map(lambda text: text and f"?utm_source=x&{text}"),
)


@SETTINGS
@given(URLS | st.text(max_size=40))
def test_normalizing_a_url_is_idempotent_for_any_text(text):
    normal = normalize_url(text)
    assert normalize_url(normal) == normal
    assert item_key({"url": text}, "url") == item_key(
        {"url": item_key({"url": text}, "url")}, "url"
    )
    assert len(digest_of(item_key({"title": text}, "title"))) == 32


@SETTINGS
@given(
    st.lists(st.sampled_from(["a=1", "b=2", "q=%C3%A9", "id=7", "ref=x"]), max_size=4),
    st.lists(
        st.sampled_from(["utm_source=n", "UTM_Medium=m", "fbclid=1", "gclid=2", "mc_eid=3"]),
        max_size=3,
    ),
    st.randoms(use_true_random=False),
)
def test_a_normalized_url_drops_tracking_parameters_and_keeps_others(real, tracking, chance):
    parameters = list(real)
    for parameter in tracking:
        parameters.insert(chance.randint(0, len(parameters)), parameter)
    plain = "https://news.example/story" + ("?" + "&".join(real) if real else "")
    assert normalize_url("https://News.Example/story?" + "&".join(parameters)) == plain
    assert normalize_url(f"{plain}{'&' if real else '?'}page=2") != plain


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("HTTPS://News.Example/a", "https://news.example/a"),
        ("https://news.example:443/a", "https://news.example/a"),
        ("http://news.example:80", "http://news.example/"),
        ("https://news.example/a#comments", "https://news.example/a"),
        ("https://news.example/%7euser/%c3%a9", "https://news.example/~user/%C3%A9"),
        ("https://news.example/a/./b/../c", "https://news.example/a/c"),
        ("https://news.example./a?utm_source=x", "https://news.example/a"),
        ("  https://news.example/a\n", "https://news.example/a"),
    ],
)
def test_equivalent_urls_have_one_key(first, second):
    assert item_key({"url": first}, "url") == item_key({"url": second}, "url")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("http://news.example/a", "https://news.example/a"),
        ("https://news.example/a", "https://news.example/a/"),
        ("https://news.example/a", "https://news.example/A"),
        ("https://news.example/?a=1&b=2", "https://news.example/?b=2&a=1"),
        ("https://news.example/?utmost=1", "https://news.example/"),
        ("https://app.example/#/a", "https://app.example/#/b"),
        ("https://news.example/a%2Fb", "https://news.example/a/b"),
        ("urn:isbn:1", "urn:isbn:2"),
    ],
)
def test_possibly_different_urls_have_two_keys(first, second):
    assert item_key({"url": first}, "url") != item_key({"url": second}, "url")


# --- the tool and the report ---


@pytest.fixture
async def journal(tmp_path):
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield Journal(database, clock=lambda: NOW)
    await database.close()


async def begin_run(journal, name="news"):
    claim = Claim(
        routine=name, definition="{}", trigger="manual", slot=NOW, goal="g", event=new_id()
    )
    (run,) = await journal.slots.claim([claim])
    return await journal.runs.claim(run.id, owner="test")


def items(*names):
    return [{"title": name.upper(), "url": f"https://x.example/{name}"} for name in names]


async def call(journal, run, key, reported_items, by="url"):
    """Make one call, as the hands of a run do."""
    registry = FunctionRegistry()
    report_items.register(registry, journal.runs, journal.seen_items)
    function_call = FunctionCall(name="report_items", arguments={"items": reported_items})
    body = {"tool": "report_items", "arguments": function_call.arguments}
    await journal.runs.append(run, Step(kind=StepKind.CALL, iteration=1, call_id=key, body=body))
    context = ToolContext(run=run.id, routine=run.routine, workspace=None, call=key, dedupe=by)
    result = await ToolExecutor(registry).run(function_call, context)
    result_body = {"tool": "report_items", "ok": result.ok, "text": result.text}
    await journal.runs.append(
        run, Step(kind=StepKind.RESULT, iteration=1, call_id=key, body=result_body)
    )
    return result


async def end_run(journal, run):
    """End a run well, as runs/run.py does."""
    collection = collect_items(await journal.runs.get_steps(run.id), "url")
    reply = report_new_items(Reply(content="whatever", status=Status.SUCCEEDED), collection)
    sightings = ReportedItemRecord(items=collection.sightings, keep=timedelta(days=365))
    ended_run = run.to(
        Status.SUCCEEDED,
        report=reply.content,
        silent=reply.silent,
        detail=reply.detail,
        ended=NOW,
    )
    return await journal.runs.end(ended_run, [("log", {})], reported_items=sightings)


async def test_a_report_lists_only_new_items_and_without_new_items_the_run_is_silent(journal):
    first = await begin_run(journal)
    result = await call(journal, first, "1.0", items("a", "b"))
    assert json.loads(result.text) == {"items": 2, "new": 2, "seen": 0, "new_at": [0, 1]}
    ended_run = await end_run(journal, first)
    assert (
        ended_run.report
        == "2 new\n\n- **A**\n  https://x.example/a\n- **B**\n  https://x.example/b"
    )
    second = await begin_run(journal)
    result = await call(journal, second, "1.0", items("a", "c", "b"))
    assert json.loads(result.text) == {"items": 3, "new": 1, "seen": 2, "new_at": [1]}
    ended_run = await end_run(journal, second)
    assert ended_run.report == "1 new, 2 seen before\n\n- **C**\n  https://x.example/c"
    third = await begin_run(journal)
    await call(journal, third, "1.0", items("a", "b"))
    ended_run = await end_run(journal, third)
    assert (ended_run.silent, ended_run.report, ended_run.detail) == (
        True,
        "",
        "nothing new: 2 items, all seen before",
    )
    (delivery,) = await journal.outbox.find(run=third.id)
    assert delivery.status == "suppressed"


async def test_items_of_a_run_without_success_stay_new(journal):
    dead = await begin_run(journal)
    await call(journal, dead, "1.0", items("a"))
    failed_run = await begin_run(journal)
    await call(journal, failed_run, "1.0", items("a"))
    await journal.runs.end(failed_run.to(Status.FAILED, ended=NOW))
    again = await begin_run(journal)
    result = await call(journal, again, "1.0", items("a"))
    assert json.loads(result.text)["new"] == 1


async def test_an_item_reported_twice_by_one_run_is_one_item(journal):
    run = await begin_run(journal)
    await call(journal, run, "1.0", items("a", "b"))
    result = await call(
        journal, run, "2.0", [*items("b", "c"), {"title": "C?", "url": "https://X.example/c#top"}]
    )
    assert json.loads(result.text) == {"items": 3, "new": 1, "seen": 2, "new_at": [1]}
    collection = collect_items(await journal.runs.get_steps(run.id), "url")
    assert [item["title"] for item in collection.new_items] == [
        "A",
        "B",
        "C",
    ] and not collection.old_items


async def test_reported_items_are_kept_per_routine(journal):
    first_run = await begin_run(journal, "one")
    await call(journal, first_run, "1.0", items("a"))
    await end_run(journal, first_run)
    other_run = await begin_run(journal, "other")
    assert json.loads((await call(journal, other_run, "1.0", items("a"))).text)["new"] == 1


@pytest.mark.parametrize(
    ("item_list", "expected_text"),
    [
        ([{"title": "x"}], "item 1 has no url, by which items are told apart here"),
        ([*items("a"), {"title": "x", "url": " "}, {"title": "y"}], "items 2, 3 have no url"),
        ([{"url": "https://x.example"}], "title"),
        ("a, b", "items"),
    ],
)
async def test_reported_items_without_a_usable_key_are_all_refused(
    journal, item_list, expected_text
):
    run = await begin_run(journal)
    result = await call(journal, run, "1.0", item_list)
    assert not result.ok and expected_text in result.text
    assert collect_items(await journal.runs.get_steps(run.id), "url") is None


async def test_report_items_without_dedupe_in_the_routine_fails(journal):
    result = await call(journal, await begin_run(journal), "1.0", items("a"), by="")
    assert not result.ok and "[dedupe]" in result.text


def test_a_dedupe_run_with_a_report_but_no_reported_items_fails():
    reply = Reply(content="All the news", status=Status.SUCCEEDED)
    new_reply = report_new_items(reply, None)
    assert (new_reply.status, new_reply.content) == (
        Status.FAILED,
        "All the news",
    ) and "report_items" in new_reply.detail
    silent = replace(reply, content="", silent=True, detail="the feed is empty")
    assert report_new_items(silent, None) == silent
    failed_reply = replace(reply, status=Status.FAILED, detail="no network")
    assert report_new_items(failed_reply, None) == failed_reply


# --- the items that were reported ---


async def test_items_not_reported_for_long_are_forgotten_and_listed_items_kept(
    tmp_path,
):
    moments = [NOW]
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    journal = Journal(database, clock=lambda: moments[0])
    for day, names in ((0, "ab"), (80, "a"), (120, "c")):
        moments[0] = NOW + timedelta(days=day)
        run = await begin_run(journal)
        reported_items = [
            ReportedItem(digest=digest_of(name), key=name, title=name) for name in names
        ]
        sightings = ReportedItemRecord(items=reported_items, keep=timedelta(days=90))
        await journal.runs.end(run.to(Status.SUCCEEDED, ended=moments[0]), reported_items=sightings)
    kept_items, count = await journal.seen_items.find("news")
    assert ([(item.key, item.times) for item in kept_items], count) == ([("c", 1), ("a", 2)], 2)
    assert await journal.seen_items.find_known("news", [digest_of(name) for name in "abc"]) == {
        digest_of("a"),
        digest_of("c"),
    }
    assert await journal.seen_items.forget("news", "a") == 1
    assert await journal.seen_items.forget("news") == 1
    await database.close()


async def test_erasure_of_a_run_removes_item_texts_and_keeps_the_items_known(journal):
    run = await begin_run(journal)
    await call(journal, run, "1.0", items("secret-plan"))
    await end_run(journal, run)
    from daemon.memory.erasure import journal_rows

    await journal._db.write(lambda connection: journal_rows.erase_run(connection, run.id, NOW))
    ((item,), _) = await journal.seen_items.find("news")
    assert (item.key, item.title) == ("", "")
    again = await begin_run(journal)
    assert json.loads((await call(journal, again, "1.0", items("secret-plan"))).text)["new"] == 0


async def test_agent_of_a_daemon_reports_only_new_items(home):
    def replies(*turns):
        return ",\n".join(
            f'{{ tool_calls = [{{ name = "report_items", arguments = {{ items = [{inner}] }} }},'
            ' { name = "finish", arguments = {} }] }'
            for inner in turns
        )

    a, b = (
        '{ title = "A", url = "https://x.example/a" }',
        '{ title = "B", url = "https://x.example/b?utm_source=q" }',
    )
    reply_list = replies(a, f"{a}, {b}", f"{b}, {a}", a)
    home.write(
        "config.toml",
        '[providers.says]\nkind = "scripted"\n'
        f'replies = [{reply_list}, "All the news.", "As I said."]\n',
    )
    home.routine(
        "news",
        '[run]\nmode = "agent"\nprovider = "says"\nprompt = "The news."\n'
        '[dedupe]\nkey = "url"\n[[deliver]]\nto = "log"\n',
    )
    await home.start()
    first, second, third = [(await home.agentctl("run", "news")) for _ in range(3)]
    assert (first.code, first.out) == (0, "1 new\n\n- **A**\n  https://x.example/a\n")
    assert (second.code, second.out) == (
        0,
        "1 new, 1 seen before\n\n- **B**\n  https://x.example/b?utm_source=q\n",
    )
    assert (third.code, third.out) == (
        0,
        "",
    ) and "nothing new: 2 items, all seen before" in third.err
    result = await home.agentctl("seen", "news")
    assert (
        result.code == 0 and "https://x.example/b" in result.out and "utm_source" not in result.out
    )
    assert (await home.agentctl("seen", "news", "forget", "https://X.example/a#x")).out == (
        "1 item of news may be reported again\n"
    )
    assert (await home.agentctl("seen", "news", "forget", "https://x.example/a")).code == 4
    assert (await home.agentctl("seen", "news", "forget")).code == 2
    assert (await home.agentctl("run", "news")).out == "1 new\n\n- **A**\n  https://x.example/a\n"
    past = await home.agentctl("run", "news", "--json")
    assert (past.code, past.json["status"]) == (1, "failed") and "report_items" in past.json[
        "detail"
    ]
    assert (
        await home.agentctl("seen", "news", "forget", "--all")
    ).out == "2 items of news may be reported again\n"
    assert (await home.agentctl("seen", "news")).out == "news has reported no items yet.\n"
