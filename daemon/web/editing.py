"""Routines edited and created on the page, as the text of their files, where `[ui] edit` is on.

The daemon checks a text and writes it (daemon/api/routine_sources.py). Here are the form, what is
wrong with the text beside it, and the text that a person typed, which no refusal loses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from daemon.cli.call import quote
from daemon.cli.client import ApiError, Client
from daemon.cli.render import ALLOWED_UNPRINTABLE
from daemon.web.rendering import text_without_place
from daemon.web.views import Context, PageMoved

EMPTY = """\
description = ""

[trigger]
cron = "0 9 * * mon-fri"

[run]
prompt = \"\"\"

\"\"\"

[[deliver]]
to = "file"
path = "reports/{routine}/{slot:%Y-%m-%d}.md"
"""


class TextFault(NamedTuple):
    """Something that is wrong with a text, and the number of its line where that is known."""

    text: str
    line: int | None


class Refusal(NamedTuple):
    """The form again, with what was typed into it and why nothing was written."""

    context: Context
    status: HTTPStatus


def show_editor(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show the file of a routine as a text to be changed."""
    source = client.request("GET", f"/v1/routines/{quote(name)}/source")
    if source.get("read_only", "") is not None:
        raise PageMoved(f"/routines/{quote(name)}")
    return "edit.html", _make_form(name, source["text"], source=source)


def show_new_routine(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show a new routine as a text to be written, which begins as a recipe or nearly empty."""
    if not client.request("GET", "/v1/status?counts=false").get("edit"):
        raise PageMoved("/routines")
    recipe = query.get("recipe", "")
    texts = _request_recipes(client)
    form = _make_form(recipe if recipe in texts else "", texts.get(recipe, EMPTY))
    return "edit.html", {**form, "recipes": list(texts), "recipe": recipe}


def save(
    client: Client, path_parameters: Mapping[str, str], form: Mapping[str, str]
) -> str | Refusal:
    """Write the text of a form; return the path of the page to show next, or the form again."""
    # a browser ends the lines of a form as HTTP does
    text = form.get("text", "").replace("\r\n", "\n")
    if "name" in path_parameters:
        return _replace(client, path_parameters["name"], text, form.get("digest", ""))
    return _create(client, form.get("name", "").strip(), text, form.get("recipe", ""))


def _replace(client: Client, name: str, text: str, digest: str) -> str | Refusal:
    path = f"/v1/routines/{quote(name)}/source"
    source = client.request("GET", path)
    if text == source["text"].replace("\r\n", "\n"):
        return f"/routines/{quote(name)}?done=unchanged"
    if faults := hidden_characters(text):
        return _refuse(_make_form(name, text, source={**source, "digest": digest}), faults)
    file_text = text.replace("\n", "\r\n") if "\r\n" in source["text"] else text
    # what is no digest cannot be sent in a header: an empty tag is that of no file
    tag = digest if re.fullmatch("[0-9a-f]{64}", digest) else ""
    try:
        client.request("PUT", path, {"text": file_text}, {"If-Match": f'"{tag}"'})
    except ApiError as problem:
        if problem.status == HTTPStatus.PRECONDITION_FAILED:
            # the form has the digest of now: to save again is to replace what the file has now
            present = client.request("GET", path)
            form = _make_form(name, text, source=present)
            return _refuse_for(problem, {**form, "present_text": present["text"]})
        return _refuse_for(problem, _make_form(name, text, source={**source, "digest": digest}))
    return _path_after(client, name)


def _create(client: Client, name: str, text: str, recipe: str) -> str | Refusal:
    form = {**_make_form(name, text), "recipes": list(_request_recipes(client)), "recipe": recipe}
    if not name:
        return _refuse(form, [TextFault("a routine needs a name, of a-z, 0-9 and -", None)])
    if faults := hidden_characters(text):
        return _refuse(form, faults)
    path = f"/v1/routines/{quote(name)}/source"
    try:
        client.request("PUT", path, {"text": text}, {"If-None-Match": "*"})
    except ApiError as problem:
        return _refuse_for(problem, form)
    return _path_after(client, name)


def _path_after(client: Client, name: str) -> str:
    """Return the path of the page that shows a routine which was just written."""
    try:
        client.request("GET", f"/v1/routines/{quote(name)}")
    except ApiError:  # it waits for other files to be mended, as the first page says
        return "/"
    return f"/routines/{quote(name)}?done=saved"


def _make_form(name: str, text: str, *, source: Mapping[str, Any] | None = None) -> Context:
    """Return what the template shows: of a routine that exists, or without `source` of a new
    one.
    """
    return {
        "title": f"Edit {name}" if source else "New routine",
        "current_path": "/routines",
        "name": name,
        "text": text,
        "digest": source["digest"] if source else "",
        "path": source["path"] if source else "",
        "is_new": source is None,
        "faults": [] if source is None else hidden_characters(text),
        "is_refused": False,
        "present_text": None,
        "recipes": [],
        "recipe": "",
    }


def _request_recipes(client: Client) -> dict[str, str]:
    recipes = client.request("GET", "/v1/recipes")["items"]
    return {recipe["name"]: recipe["text"] for recipe in recipes}


def hidden_characters(text: str) -> list[TextFault]:
    """Return the characters that no page shows, as they turn or hide the text around them."""
    return [
        TextFault(f"U+{ord(char):04X} is not shown; only `agentctl edit` takes it", number)
        for number, line in enumerate(text.split("\n"), 1)
        for char in dict.fromkeys(line.removesuffix("\r"))
        if not char.isprintable() and char not in ALLOWED_UNPRINTABLE
    ]


def _refuse_for(problem: ApiError, form: Context) -> Refusal:
    """Return the form again for a refusal of the daemon. Raises the problem if it is a fault of the
    daemon itself.
    """
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise problem
    faults = [
        TextFault(text_without_place(fault), fault["line"])
        for fault in problem.body.get("faults", ())
    ]
    return _refuse(form, faults or [TextFault(str(problem), None)], HTTPStatus(problem.status))


def _refuse(
    form: Context, faults: list[TextFault], status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY
) -> Refusal:
    title = f"Not saved: {form['title']}"
    return Refusal({**form, "faults": faults, "is_refused": True, "title": title}, status)
