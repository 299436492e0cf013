"""`agentctl memory …`: search, list, forget, export and index what runs left behind."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from daemon.cli.call import DONE, NOT_SUCCEEDED, REFUSED, USAGE, Call, quote
from daemon.cli.client import ApiError
from daemon.cli.render import (
    BOLD,
    DIM,
    YELLOW,
    format_bytes,
    format_instant,
    local_now,
    one_line,
    short_id,
)
from daemon.plurals import pluralize

if TYPE_CHECKING:
    from argparse import ArgumentParser

# Of the lines of one request of an import, as JSON; the API takes a megabyte.
_MAX_BATCH_BYTES = 400_000
_INDEX_POLL_SECONDS = 0.3
# Of a list of what would be deleted, without --all.
_MAX_ERASURE_LINES = 20
_MAX_HIT_CHARACTERS = 600
_MAX_ITEM_CHARACTERS = 200


def main(call: Call) -> int:
    """Parse the arguments behind `memory`, and call the function of the subcommand."""
    parser = _make_parser()
    options = vars(parser.parse_args([argument for argument in call.rest if argument != "--json"]))
    run_subcommand: Callable[[Call], int] | None = options.pop("run_subcommand", None)
    if run_subcommand is None:
        parser.print_help()
        return USAGE
    socket = options.pop("socket", None) or call.socket
    try:
        return run_subcommand(Call(socket, {**options, "json": call.json}))
    except BrokenPipeError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        if options.get("file") is None:  # to export to or import from
            raise
        reason = "not UTF-8 text"
        if isinstance(error, FileExistsError):
            reason = "is there already; name another file, or take that one away"
        elif isinstance(error, OSError):
            reason = error.strerror or str(error) or type(error).__name__
    name = options["file"] or "''"
    call.err.write_line(f"agentctl: {name}: {reason}")
    return NOT_SUCCEEDED


def _make_parser() -> ArgumentParser:
    from daemon.cli.parser import Parser

    parser = Parser(
        prog="agentctl memory", description="What earlier runs left behind.", allow_abbrev=False
    )
    subparsers = parser.add_subparsers(metavar="VERB")

    def add_subcommand(
        name: str, function: Callable[[Call], int], description: str
    ) -> ArgumentParser:
        subparser = subparsers.add_parser(
            name, help=description, description=description, allow_abbrev=False
        )
        subparser.set_defaults(run_subcommand=function)
        return subparser

    subparser = add_subcommand("search", search, "find what was kept and said, best first")
    subparser.add_argument(
        "text", nargs="+", metavar="TEXT", help="a question in plain words, or the key of an item"
    )
    subparser.add_argument(
        "-n", "--limit", type=int, default=10, metavar="N", help="how many; default 10"
    )
    subparser.add_argument(
        "--expand", type=int, default=0, metavar="N", help="show N texts before and after each"
    )
    subparser.add_argument(
        "--why", action="store_true", help="show what each reason added to the score"
    )

    subparser = add_subcommand("list", list_items, "what is kept under keys, changed last first")
    subparser.add_argument("--category", choices=("core", "daily", "conversation", "custom"))

    subparser = add_subcommand("show", show, "one item in full")
    subparser.add_argument("key", metavar="KEY")

    subparser = add_subcommand(
        "forget", forget, "show what would go, and delete it for good: everywhere in the database"
    )
    subparser.add_argument(
        "--key", metavar="KEY", help="the item with this key, and where runs quote it"
    )
    subparser.add_argument(
        "--query", metavar="TEXT", help="items and whole runs that hold all these words"
    )
    subparser.add_argument("--run", metavar="RUN", help="a run and what it kept")
    subparser.add_argument(
        "--routine", metavar="ROUTINE", help="all runs of a routine and what they kept"
    )
    subparser.add_argument(
        "--before",
        metavar="TIME",
        help="what ended or was last changed before: 2026-01-31, or 90d ago",
    )
    subparser.add_argument("--yes", action="store_true", help="do not ask")
    subparser.add_argument(
        "--all", action="store_true", help="show all that would go, however much it is"
    )

    subparser = add_subcommand("export", export, "all of it as lines of JSON")
    subparser.add_argument(
        "file", nargs="?", metavar="FILE", help="where to; default: standard output"
    )

    subparser = add_subcommand(
        "import", import_, "take in what `export` wrote; what was changed here since stays"
    )
    subparser.add_argument("file", metavar="FILE", help="- is standard input")

    subparser = add_subcommand("pin", pin, "let no retention take an item")
    subparser.add_argument("key", metavar="KEY")
    subparser = add_subcommand("unpin", unpin, "let it again")
    subparser.add_argument("key", metavar="KEY")
    add_subcommand("stats", show_stats, "how much there is, and how far the index is")
    add_subcommand("reindex", reindex, "make the index anew")
    add_subcommand("check", check, "check the index against what it was made of")

    for subparser in subparsers.choices.values():
        subparser.add_argument("--socket", metavar="PATH", help="where the daemon listens")
        subparser.add_argument(
            "--json", action="store_true", help="what the daemon answered, as it is"
        )
    return parser


def search(call: Call) -> int:
    """Find items and texts of runs, best first."""
    question = quote(" ".join(call.text))
    answer = call.request(
        "GET", f"/v1/memory/search?query={question}&limit={call.limit}&window={call.expand}"
    )
    if answer is None:
        return DONE
    out = call.out
    if not answer["items"]:
        out.write_line("Nothing is remembered about that.")
        return DONE
    now = local_now()
    for hit in answer["items"]:
        out.write_line(f"{hit['relevance']:.2f}  {out.paint(_describe_source(hit, now), BOLD)}")
        for text in hit["before"]:
            out.write_line(out.paint(f"      {_format_text(call, text)}", DIM))
        out.write_line(f"      {_format_text(call, hit)}")
        for text in hit["after"]:
            out.write_line(out.paint(f"      {_format_text(call, text)}", DIM))
        if call.why:
            scores = ", ".join(f"{reason} {score:+.2f}" for reason, score in hit["why"].items())
            out.write_line(out.paint(f"      because: {scores}", DIM))
        anchor = hit["anchor"]
        if run := anchor["run"]:
            position = run if hit["key"] else f"{run}/{anchor['iteration']}/{anchor['segment']}"
            text = f"      {position}  agentctl inspect {short_id(run)}"
            out.write_line(out.paint(text, DIM))
    return DONE


def _describe_source(hit: Mapping[str, Any], now: datetime) -> str:
    """Return the key or routine of a hit, its kind, its time, and whether it is untrusted."""
    anchor = hit["anchor"]
    parts = [
        hit["key"] or hit["routine"],
        "item" if hit["key"] else anchor["type"].replace("_", " "),
        format_instant(anchor["at"], now),
        "untrusted" if hit["tainted"] else "",
    ]
    return " · ".join(part for part in parts if part)


def _format_text(call: Call, text: Mapping[str, Any]) -> str:
    line = one_line(text["text"])
    if text["who"]:
        line = f"{text['who']}: {line}"
    if len(line) > _MAX_HIT_CHARACTERS:
        line = f"{line[:_MAX_HIT_CHARACTERS]} …"
    return call.out.sanitize(line)


def list_items(call: Call) -> int:
    """List what is kept under keys."""
    category_filter = f"&category={call.category}" if call.category else ""
    items = call.request_items(f"/v1/memory/items?limit=500{category_filter}")
    if call.json:
        return call.print_json({"items": items, "next": None})
    if not items:
        call.out.write_line("Nothing is kept yet.")
        return DONE
    now = local_now()
    rows = [
        (
            item["key"],
            f"{item['category']}{', pinned' if item['pinned'] else ''}",
            format_instant(item["updated"], now),
            item["text"],
        )
        for item in items
    ]
    call.out.write_table(["KEY", "CATEGORY", "CHANGED", "TEXT"], rows, signs=False)
    return DONE


def show(call: Call) -> int:
    """Show one item in full; raise ApiError (not_found) if there is none."""
    path = f"/v1/memory/search?query={quote(call.key)}&limit=50"
    for item in call.client.request("GET", path)["items"]:
        if item["key"] == call.key:
            break
    else:
        detail = f"nothing is kept under {call.key!r}; `agentctl memory list` shows what is"
        raise ApiError(404, {"code": "not_found", "detail": detail})
    if call.json:
        return call.print_json(item)
    call.out.write_line(call.out.paint(_describe_source(item, local_now()), BOLD))
    call.out.write_line(call.out.sanitize(item["text"]))
    return DONE


def forget(call: Call) -> int:
    """Show what would be deleted, ask, and delete it."""
    selection = {
        name: getattr(call, name)
        for name in ("key", "query", "run", "routine", "before")
        if getattr(call, name) is not None  # the daemon refuses an empty one
    }
    if not selection:
        call.err.write_line("say what to forget: --key, --query, --run, --routine or --before")
        return USAGE
    plan = call.client.request("POST", "/v1/memory/forget", selection)
    out = call.err if call.json else call.out
    if not (call.json and call.yes):
        _write_erasure_plan(call, plan)
    if not plan["items"] and not plan["runs"]:
        return NOT_SUCCEEDED
    if not call.yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            out.write_line("Nothing was deleted. With --yes it will be.")
            return REFUSED
        sys.stdout.write("\nDelete this for good? It cannot be undone. [y/N] ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out.write_line("Nothing was deleted.")
            return REFUSED
    erasure = call.request("POST", "/v1/memory/forget", {**selection, "confirm": plan["confirm"]})
    if erasure is not None:
        counts = [
            pluralize(len(erasure[name]), noun)
            for name, noun in (("items", "item"), ("runs", "run"))
            if erasure[name]
        ]
        if erasure["quotes"]:
            counts.append(f"quotes in {pluralize(len(erasure['quotes']), 'run')}")
        call.out.write_line(
            f"forgot {', '.join(counts)}; the database was written anew without them"
        )
    return DONE


def _write_erasure_plan(call: Call, plan: Mapping[str, Any]) -> None:
    out, now = call.err if call.json else call.out, local_now()
    limit = None if call.all else _MAX_ERASURE_LINES

    def write_hidden_count(count: int) -> None:
        if limit and count > limit:
            out.write_line(f"  … and {count - limit} more; --all shows them")

    items, runs, quotes = plan["items"], plan["runs"], plan["quotes"]
    if items:
        out.write_title(f"{pluralize(len(items), 'item')} would go")
        for item in items[:limit]:
            change_time = out.paint(format_instant(item["updated"], now), DIM)
            out.write_line(f"  {out.sanitize(item['key'])}  {change_time}")
            out.write_line(f"    {out.sanitize(one_line(item['text'])[:_MAX_ITEM_CHARACTERS])}")
        write_hidden_count(len(items))
    if runs:
        out.write_title(
            f"{pluralize(len(runs), 'run')} would lose what they were told, did and said"
        )
        for run in runs[:limit]:
            out.write_line(f"  {run['id']}  {out.sanitize(run['routine'])}")
        write_hidden_count(len(runs))
    if quotes:
        out.write_title(
            f"{pluralize(len(quotes), 'other run')} quote it; the quotes would be overwritten"
        )
        for run_id in list(quotes)[:limit]:
            out.write_line(f"  {run_id}  {pluralize(quotes[run_id], 'place')}")
        write_hidden_count(len(quotes))
    if plan["out_of_reach"]:
        out.write_title("Out of reach, to be deleted by you")
        lines = list(plan["out_of_reach"])
        if limit and len(lines) > limit:  # reports by run first, then what holds of all of them
            rest = lines[-_MAX_ERASURE_LINES // 2 :]
            lines = lines[: limit - len(rest)]
            hidden_count = len(plan["out_of_reach"]) - len(lines) - len(rest)
            lines += [f"… and {hidden_count} more; --all shows them", *rest]
        for line in lines:
            out.write_line(out.paint(f"  {out.sanitize(line)}", YELLOW))


def export(call: Call) -> int:
    """Write the whole memory as lines of JSON, to standard output or into a new file."""
    if call.file is None:
        for line in _request_export_lines(call):
            call.out.write_line(line)
        return DONE
    count = 0
    # never over another file, and for its owner alone: it holds whatever runs were told
    descriptor = os.open(call.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            for line in _request_export_lines(call):
                file.write(line + "\n")
                count += 1
    except BaseException:  # half a file would be in the way of the next try
        os.unlink(call.file)  # noqa: PTH108  fast to import
        raise
    call.err.write_line(f"wrote {pluralize(count, 'line')} to {call.file}")
    return DONE


def _request_export_lines(call: Call) -> Iterator[str]:
    answer = call.client.request("GET", "/v1/memory/export")
    while True:
        for line in answer["lines"]:
            yield json.dumps(line, ensure_ascii=False)
        if answer["next"] is None:
            return
        answer = call.client.request("GET", f"/v1/memory/export?cursor={quote(answer['next'])}")


def import_(call: Call) -> int:
    """Import what `export` wrote; what was changed here since stays."""
    from daemon.cli.progress_bar import make_progress_bar

    totals = {"items": 0, "runs": 0, "known": 0}
    imported_bytes, show_progress = 0, make_progress_bar("importing")
    is_stdin = call.file == "-"
    with sys.stdin if is_stdin else open(call.file, encoding="utf-8") as file:  # noqa: PTH123  fast to import
        file_size = 0 if is_stdin else os.fstat(file.fileno()).st_size
        for first_line, text in _read_batches(file):
            body = {"lines": text, "first": first_line}
            result = call.client.request("POST", "/v1/memory/import", body)
            totals = {name: count + result[name] for name, count in totals.items()}
            imported_bytes += len(text.encode())
            if file_size:  # the length of a pipe is unknown
                show_progress(min(1.0, imported_bytes / file_size))
    if call.json:
        return call.print_json(totals)
    items, runs = pluralize(totals["items"], "item"), pluralize(totals["runs"], "run")
    call.out.write_line(f"read {items} and {runs}; {totals['known']} were known already")
    return DONE


def _read_batches(file: TextIO) -> Iterator[tuple[int, str]]:
    """Yield the lines joined to batches of a request, each with the number of its first line."""
    first_line, batch, size = 1, list[str](), 0
    for number, line in enumerate(file, 1):
        line_size = len(json.dumps(line))
        if batch and size + line_size > _MAX_BATCH_BYTES:
            yield first_line, "".join(batch)
            first_line, batch, size = number, [], 0
        batch.append(line)
        size += line_size
    if batch:
        yield first_line, "".join(batch)


def pin(call: Call) -> int:
    """Let no retention take an item."""
    return _print_detail(call, call.request("POST", "/v1/memory/pin", {"key": call.key}))


def unpin(call: Call) -> int:
    """Let retention take an item again."""
    return _print_detail(call, call.request("POST", "/v1/memory/unpin", {"key": call.key}))


def _print_detail(call: Call, answer: Any) -> int:
    if answer is not None:
        call.out.write_line(call.out.sanitize(answer["detail"]))
    return DONE


def reindex(call: Call) -> int:
    """Rebuild the index; on a terminal, show how far it is until it is done or Ctrl-C."""
    answer = call.request("POST", "/v1/memory/reindex", {})
    if answer is None or not call.err.is_terminal:
        return _print_detail(call, answer)
    from daemon.cli.progress_bar import make_progress_bar

    show_progress = make_progress_bar("indexing")
    index = call.client.request("GET", "/v1/memory/stats")["index"]
    while not index["whole"]:
        show_progress(min(0.99, index["runs"] / index["of"] if index["of"] else 0.0))
        time.sleep(_INDEX_POLL_SECONDS)
        index = call.client.request("GET", "/v1/memory/stats")["index"]
    show_progress(1.0)
    call.out.write_line("the index was made anew")
    return DONE


def check(call: Call) -> int:
    """Check the index against what it was made of."""
    answer = call.request_and_print("GET", "/v1/memory/check")
    if call.json:
        return DONE if answer["ok"] else NOT_SUCCEEDED
    for fault in answer["faults"]:
        call.out.write_line(fault)
    if answer["ok"]:
        call.out.write_line("the index is as it should be")
        return DONE
    call.out.write_line("`agentctl memory reindex` makes it anew")
    return NOT_SUCCEEDED


def show_stats(call: Call) -> int:
    """Show how much the memory holds, and how far the index is."""
    stats = call.request("GET", "/v1/memory/stats")
    if stats is None:
        return DONE
    out, index, embedder = call.out, stats["index"], stats["embedder"]
    items = ", ".join(f"{count} {category}" for category, count in stats["items"].items())
    runs = (
        f"{stats['runs']} archived in {stats['texts']} texts, {stats['superseded']} of them said "
        "again later"
    )
    index_state = "whole"
    if not index["whole"]:
        index_state = f"being made: {index['runs']} of {index['of']} runs"
    embedder_state = "none"
    if embedder:
        embedder_state = f"{embedder['name']}, {embedder['known']} texts embedded"
    for name, text in (
        ("items", f"{items or 'none'}; {stats['pinned']} pinned"),
        ("runs", runs),
        ("index", index_state),
        ("embedder", embedder_state),
        ("forgotten", str(stats["forgotten"])),
        ("database", format_bytes(stats["bytes"])),
    ):
        out.write_line(f"  {name:<10} {out.sanitize(text)}")
    if embedder and embedder["fault"]:
        text = f"  the embedder is left alone for a while: {embedder['fault']}"
        out.write_line(out.paint(text, YELLOW))
    return DONE
