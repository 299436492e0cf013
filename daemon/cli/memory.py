"""`agentctl memory …`: what its verbs ask and print."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from daemon.cli.call import DONE, NOT_SUCCEEDED, REFUSED, USAGE, Call, quote
from daemon.cli.render import BOLD, DIM, YELLOW, counted, now, one_line, short, size, when

if TYPE_CHECKING:
    from argparse import ArgumentParser

# What one request of an import may hold; the API takes a megabyte.
_BATCH = 400_000
LOOK = 0.3  # seconds between looks at how far the index is
_SHOWN = 20  # lines of a list of what goes; --all shows them all


def main(call: Call) -> int:
    """Do what the words behind `memory` say."""
    parser = _parser()
    options = vars(parser.parse_args([word for word in call.rest if word != "--json"]))
    verb = options.pop("verb", None)
    if verb is None:
        parser.print_help()
        return USAGE
    try:
        return int(
            verb(Call(options.pop("socket", None) or call.socket, {**options, "json": call.json}))
        )
    except (OSError, UnicodeDecodeError) as error:  # of a file to export to or import from
        if isinstance(error, BrokenPipeError):
            raise
        call.err.say(
            (  # noqa: UP034
                f"agentctl: {options.get('file')}: "
                f"{getattr(error, 'strerror', None) or 'not UTF-8 text'}"
            )
        )
        return NOT_SUCCEEDED


def _parser() -> ArgumentParser:
    from daemon.cli.parser import Parser

    parser = Parser(
        prog="agentctl memory", description="What earlier runs left behind.", allow_abbrev=False
    )
    verbs = parser.add_subparsers(metavar="VERB")

    def add(name: str, verb: object, about: str) -> ArgumentParser:
        made = verbs.add_parser(name, help=about, description=about, allow_abbrev=False)
        made.set_defaults(verb=verb)
        return made

    found = add("search", search, "find what was kept and said, best first")
    found.add_argument(
        "text", nargs="+", metavar="TEXT", help="a question in plain words, or the key of an item"
    )
    found.add_argument(
        "-n", "--limit", type=int, default=10, metavar="N", help="how many; default 10"
    )
    found.add_argument(
        "--expand", type=int, default=0, metavar="N", help="show N texts before and after each"
    )
    found.add_argument(
        "--why", action="store_true", help="show what each reason added to the score"
    )
    items = add("list", list_items, "what is kept under keys, changed last first")
    items.add_argument("--category", choices=("core", "daily", "conversation", "custom"))
    add("show", show, "one item in full").add_argument("key", metavar="KEY")
    gone = add(
        "forget", forget, "show what would go, and delete it for good: everywhere in the database"
    )
    gone.add_argument(
        "--key", metavar="KEY", help="the item with this key, and where runs quote it"
    )
    gone.add_argument(
        "--query", metavar="TEXT", help="items and whole runs that hold all these words"
    )
    gone.add_argument("--run", metavar="RUN", help="a run and what it kept")
    gone.add_argument(
        "--routine", metavar="ROUTINE", help="all runs of a routine and what they kept"
    )
    gone.add_argument(
        "--before",
        metavar="TIME",
        help="what ended or was last changed before: 2026-01-31, or 90d ago",
    )
    gone.add_argument("--yes", action="store_true", help="do not ask")
    gone.add_argument(
        "--all", action="store_true", help="show all that would go, however much it is"
    )
    out = add("export", export, "all of it as lines of JSON")
    out.add_argument("file", nargs="?", metavar="FILE", help="where to; default: standard output")
    into = add("import", take_in, "take in what `export` wrote; what was changed here since stays")
    into.add_argument("file", metavar="FILE", help="- is standard input")
    add("pin", pin, "let no retention take an item").add_argument("key", metavar="KEY")
    add("unpin", unpin, "let it again").add_argument("key", metavar="KEY")
    add("stats", stats, "how much there is, and how far the index is")
    add("reindex", reindex, "make the index anew")
    add("check", check, "check the index against what it was made of")
    for made in verbs.choices.values():
        made.add_argument("--socket", metavar="PATH", help="where the daemon listens")
        made.add_argument("--json", action="store_true", help="what the daemon answered, as it is")
    return parser


def search(call: Call) -> int:
    """Find what was kept and said."""
    question = " ".join(call.text)
    told = call.ask(
        "GET", f"/v1/memory/search?query={quote(question)}&limit={call.limit}&window={call.expand}"
    )
    if told is None:
        return DONE
    if not told["items"]:
        call.out.say("Nothing is remembered about that.")
        return DONE
    today = now()
    for hit in told["items"]:
        call.out.say(f"{hit['relevance']:.2f}  {call.out.paint(_source(hit, today), BOLD)}")
        for text in hit["before"]:
            call.out.say(call.out.paint(f"      {_said(call, text)}", DIM))
        call.out.say(f"      {_said(call, hit)}")
        for text in hit["after"]:
            call.out.say(call.out.paint(f"      {_said(call, text)}", DIM))
        if call.why:
            parts = ", ".join(f"{reason} {part:+.2f}" for reason, part in hit["why"].items())
            call.out.say(call.out.paint(f"      because: {parts}", DIM))
        if run := hit["anchor"]["run"]:
            place = (
                f"{run}/{hit['anchor']['iteration']}/{hit['anchor']['segment']}"
                if not hit["key"]
                else run
            )
            call.out.say(call.out.paint(f"      {place}  agentctl inspect {short(run)}", DIM))
    return DONE


def _source(hit: Mapping[str, Any], today: Any) -> str:
    marks = [
        hit["key"] or hit["routine"],
        hit["anchor"]["type"].replace("_", " ") if not hit["key"] else "item",
    ]
    marks += [when(hit["anchor"]["at"], today), "untrusted" if hit["tainted"] else ""]
    return " · ".join(filter(None, marks))


def _said(call: Call, text: Mapping[str, Any]) -> str:
    said = one_line(text["text"])
    said = f"{text['who']}: {said}" if text["who"] else said
    return call.out.safe(said if len(said) <= 600 else f"{said[:600]} …")


def list_items(call: Call) -> int:
    """List what is kept under keys."""
    chosen = f"&category={call.category}" if call.category else ""
    items = call.items(f"/v1/memory/items?limit=500{chosen}")
    if call.json:
        return call.say_json({"items": items, "next": None})
    if not items:
        call.out.say("Nothing is kept yet.")
        return DONE
    today = now()
    rows = [
        (
            each["key"],
            f"{each['category']}{', pinned' if each['pinned'] else ''}",
            when(each["updated"], today),
            each["text"],
        )
        for each in items
    ]
    call.out.table(["KEY", "CATEGORY", "CHANGED", "TEXT"], rows, signs=False)
    return DONE


def show(call: Call) -> int:
    """Show one item in full."""
    found = call.client.ask("GET", f"/v1/memory/search?query={quote(call.key)}&limit=50")["items"]
    item = next((each for each in found if each["key"] == call.key), None)
    if item is None:
        from daemon.cli.client import Problem

        detail = f"nothing is kept under {call.key!r}; `agentctl memory list` shows what is"
        raise Problem(404, {"code": "not_found", "detail": detail})
    if call.json:
        return call.say_json(item)
    call.out.say(call.out.paint(_source(item, now()), BOLD))
    call.out.say(call.out.safe(item["text"]))
    return DONE


def forget(call: Call) -> int:
    """Show what would go; ask; delete it."""
    wish = {name: getattr(call, name) for name in ("key", "query", "run", "routine", "before")}
    wish = {name: value for name, value in wish.items() if value}
    if not wish:
        call.err.say("say what to forget: --key, --query, --run, --routine or --before")
        return USAGE
    told = call.client.ask("POST", "/v1/memory/forget", wish)
    page = call.err if call.json else call.out
    nothing = not told["items"] and not told["runs"]
    if not (call.json and call.yes):
        _show_doomed(call, told)
    if nothing:
        return NOT_SUCCEEDED
    if not call.yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            page.say("Nothing was deleted. With --yes it will be.")
            return REFUSED
        sys.stdout.write("\nDelete this for good? It cannot be undone. [y/N] ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            page.say("Nothing was deleted.")
            return REFUSED
    done = call.ask("POST", "/v1/memory/forget", {**wish, "confirm": told["confirm"]})
    if done is not None:
        call.out.say(f"forgot {_amount(done)}; the database was written anew without them")
    return DONE


def _amount(told: Mapping[str, Any]) -> str:
    parts = [
        counted(len(told[name]), word)
        for name, word in (("items", "item"), ("runs", "run"))
        if told[name]
    ]
    if told["quotes"]:
        parts.append(f"quotes in {counted(len(told['quotes']), 'run')}")
    return ", ".join(parts)


def _show_doomed(call: Call, told: Mapping[str, Any]) -> None:
    page, today, most = call.err if call.json else call.out, now(), None if call.all else _SHOWN

    def more(listed: int) -> None:
        if most and listed > most:
            page.say(f"  … and {listed - most} more; --all shows them")

    if told["items"]:
        page.title(f"{counted(len(told['items']), 'item')} would go")
        for item in told["items"][:most]:
            page.say(f"  {page.safe(item['key'])}  {page.paint(when(item['updated'], today), DIM)}")
            page.say(f"    {page.safe(one_line(item['text'])[:200])}")
        more(len(told["items"]))
    if told["runs"]:
        page.title(
            f"{counted(len(told['runs']), 'run')} would lose what they were told, did and said"
        )
        for run in told["runs"][:most]:
            page.say(f"  {run['id']}  {page.safe(run['routine'])}")
        more(len(told["runs"]))
    if told["quotes"]:
        page.title(
            f"{counted(len(told['quotes']), 'other run')} quote it; the quotes would be overwritten"
        )
        for run in list(told["quotes"])[:most]:
            page.say(f"  {run}  {counted(told['quotes'][run], 'place')}")
        more(len(told["quotes"]))
    if told["out_of_reach"]:
        page.title("Out of reach, to be deleted by you")
        for line in told["out_of_reach"]:
            page.say(page.paint(f"  {page.safe(line)}", YELLOW))


def export(call: Call) -> int:
    """Write all of it as lines of JSON."""
    import json
    import os

    def lines() -> Iterator[str]:
        part = call.client.ask("GET", "/v1/memory/export")
        while True:
            yield from (json.dumps(line, ensure_ascii=False) for line in part["lines"])
            if part["next"] is None:
                return
            part = call.client.ask("GET", f"/v1/memory/export?cursor={quote(part['next'])}")

    if not call.file:
        for line in lines():
            call.out.say(line)
        return DONE
    count = 0
    # never over another file, and for its owner alone: it holds whatever runs were told
    descriptor = os.open(call.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        for count, line in enumerate(lines(), 1):  # noqa: B007  counted, and told below
            file.write(line + "\n")
    call.err.say(f"wrote {counted(count, 'line')} to {call.file}")
    return DONE


def take_in(call: Call) -> int:
    """Take in what `export` wrote."""
    import os

    from daemon.cli.progress_bar import bar

    total, done, progress = {"items": 0, "runs": 0, "known": 0}, 0, bar("importing")
    with sys.stdin if call.file == "-" else open(call.file, encoding="utf-8") as file:  # noqa: PTH123  fast to import
        size = 0 if call.file == "-" else os.fstat(file.fileno()).st_size
        for first, lines in _batches(file):
            taken = call.client.ask("POST", "/v1/memory/import", {"lines": lines, "first": first})
            total = {name: number + taken[name] for name, number in total.items()}
            done += len(lines.encode())
            if size:  # of a pipe nobody knows how much is to come
                progress(min(1.0, done / size))
    if call.json:
        return call.say_json(total)
    told = f"{counted(total['items'], 'item')} and {counted(total['runs'], 'run')}"
    call.out.say(f"read {told}; {total['known']} were known already")
    return DONE


def _batches(lines: Any) -> Iterator[tuple[int, str]]:
    """Yield lines joined to what one request may hold, with the number of the first."""
    first, batch, length = 1, list[str](), 0
    for number, line in enumerate(lines, 1):
        if batch and length + len(line) * 2 > _BATCH:
            yield first, "".join(batch)
            first, batch, length = number, [], 0
        batch.append(line)
        length += len(line) * 2
    if batch:
        yield first, "".join(batch)


def pin(call: Call) -> int:
    """Let no retention take an item."""
    return _told(call, call.ask("POST", "/v1/memory/pin", {"key": call.key}))


def unpin(call: Call) -> int:
    """Let retention take an item again."""
    return _told(call, call.ask("POST", "/v1/memory/unpin", {"key": call.key}))


def reindex(call: Call) -> int:
    """Make the index anew; on a terminal, show how far it is until it is done or Ctrl-C is
    pressed.
    """
    told = call.ask("POST", "/v1/memory/reindex", {})
    if told is not None and call.err.terminal:
        from daemon.cli.progress_bar import bar

        progress, index = bar("indexing"), call.client.ask("GET", "/v1/memory/stats")["index"]
        while not index["whole"]:
            progress(min(0.99, index["runs"] / index["of"] if index["of"] else 0.0))
            time.sleep(LOOK)
            index = call.client.ask("GET", "/v1/memory/stats")["index"]
        progress(1.0)
        call.out.say("the index was made anew")
        return DONE
    return _told(call, told)


def _told(call: Call, told: Any) -> int:
    if told is not None:
        call.out.say(call.out.safe(told["detail"]))
    return DONE


def check(call: Call) -> int:
    """Check the index."""
    told = call.ask("GET", "/v1/memory/check")
    if told is None:
        return DONE
    for fault in told["faults"]:
        call.out.say(fault)
    call.out.say(
        "the index is as it should be" if told["ok"] else "`agentctl memory reindex` makes it anew"
    )
    return DONE if told["ok"] else NOT_SUCCEEDED


def stats(call: Call) -> int:
    """Tell how much there is."""
    told = call.ask("GET", "/v1/memory/stats")
    if told is None:
        return DONE
    state, embedder = told["index"], told["embedder"]
    items = (
        ", ".join(f"{number} {category}" for category, number in told["items"].items()) or "none"
    )
    rows = [
        ("items", f"{items}; {told['pinned']} pinned"),
        (
            "runs",
            (
                f"{told['runs']} archived in {told['texts']} texts, {told['superseded']} of them "
                "said again later"
            ),
        ),
        (
            "index",
            "whole" if state["whole"] else f"being made: {state['runs']} of {state['of']} runs",
        ),
        (
            "embedder",
            "none" if not embedder else f"{embedder['name']}, {embedder['known']} texts embedded",
        ),
        ("forgotten", str(told["forgotten"])),
        ("database", size(told["bytes"])),
    ]
    for name, text in rows:
        call.out.say(f"  {name:<10} {call.out.safe(text)}")
    if embedder and embedder["fault"]:
        call.out.say(
            call.out.paint(f"  the embedder is left alone for a while: {embedder['fault']}", YELLOW)
        )
    return DONE
