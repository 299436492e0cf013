"""The files of routines: shown as they were written, and edited or created where `[ui] edit` is on.

A person's page does both. A change is written only if the daemon would take the whole file, and if
the file is still the one that the person has seen: by its digest, as the tag of `If-Match`.
Nothing outside of the folder of routines is written.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import structlog

from daemon.api.binding import Caller, Header, RouteRow
from daemon.api.context import ApiContext
from daemon.api.problems import InvalidRequest
from daemon.api.routine_states import check_exists
from daemon.api.schemas import Page, RecipeView, RoutineSource
from daemon.definitions.routines.folder import FolderContents, write_new
from daemon.definitions.routines.source import (
    check_source,
    digest_of,
    explain_agent_owned,
    path_of_new,
    read_source,
    refuse_file_of_another,
    replace_source,
    resolve_source,
)
from daemon.definitions.words import display
from daemon.errors import FileChanged, Refused, SwitchedOff

log = structlog.get_logger()

# The longest of the shipped recipes has five thousand; the JSON of so many stays below the limit of
# a body (daemon/api/bodies.py).
MAX_TEXT_BYTES = 150_000

IfMatch = Annotated[str | None, Header("If-Match")]
IfNoneMatch = Annotated[str | None, Header("If-None-Match")]


async def show_source(api: ApiContext, *, name: str) -> RoutineSource:
    """Return the file of a routine as it was written, also where it has faults."""
    await check_exists(api, name)
    path = await asyncio.to_thread(_find_file, api, name)
    return await asyncio.to_thread(_view_of_source, api, name, path)


async def put_source(
    api: ApiContext,
    *,
    name: str,
    text: str,
    caller: Caller,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> RoutineSource:
    """Replace the file of a routine by a valid text, with the digest of the file as it was read in
    `If-Match`; or create it, with `If-None-Match: *`. Needs `[ui] edit`.
    """
    _refuse_if_switched_off(api)
    content = _encode(text)
    async with api.source_lock:
        if if_none_match == "*" and if_match is None:
            path, digest = _path_of_new(api, name), ""
        elif if_match is not None and if_none_match is None:
            await check_exists(api, name)
            path, digest = await asyncio.to_thread(_find_file, api, name), _read_tag(if_match)
            await asyncio.to_thread(_refuse_if_changed, api, name, path, digest)
        else:
            raise InvalidRequest(
                "send the digest of the file as `If-Match`, or `If-None-Match: *` to create it",
                HTTPStatus.PRECONDITION_REQUIRED,
            )
        routines = FolderContents(dict(api.engine.routines), dict(api.engine.faults))
        checks = api.administration.routine_checks()
        await asyncio.to_thread(check_source, content, path, checks=checks, routines=routines)
        # First what will be done, then what became of it: no change is without its row.
        kind = "edited" if digest else "created"
        body = {"path": str(path), "before": digest, "after": digest_of(content)}
        await api.journal.audit.write(kind, actor=caller, routine=name, body=body)
        try:
            await asyncio.to_thread(_write, api, path, content, digest)
        except Refused as error:
            body["problem"] = str(error)
            await api.journal.audit.write("not_written", actor=caller, routine=name, body=body)
            raise
    log.info("routine.written", routine=name, by=caller, created=not digest)
    await api.administration.reload_if_valid()
    return await asyncio.to_thread(_view_of_source, api, name, path)


async def list_recipes(api: ApiContext) -> Page[RecipeView]:
    """List the shipped recipes: texts that a new routine may begin with."""
    files = await asyncio.to_thread(_read_recipes, api.administration.recipe_files())
    return Page(items=files, next=None)


def _read_recipes(files: Mapping[str, Path]) -> list[RecipeView]:
    return [RecipeView(name=name, text=file.read_text("utf-8")) for name, file in files.items()]


def _find_file(api: ApiContext, name: str) -> Path:
    """Return the file of a routine that exists."""
    routine = api.engine.routines.get(name)
    if routine and routine.path:
        return routine.path
    # the file has faults
    folders = (api.settings.config.routines_path, api.agent_routines.folder)
    files = [folder / f"{name}.toml" for folder in folders]
    return next((file for file in files if file.exists()), files[0])


def _path_of_new(api: ApiContext, name: str) -> Path:
    """Return where the file of a new routine is to be. Raises Refused for what is no name, and for
    the name of another routine.
    """
    path = path_of_new(api.settings.config.routines_path, name)
    if name in api.engine.routines or name in api.engine.faults or os.path.lexists(path):
        raise FileChanged(f"there is a routine {name} already, and nothing is overwritten")
    return path


def _view_of_source(api: ApiContext, name: str, path: Path) -> RoutineSource:
    content, reason = read_source(path), None
    try:
        _refuse_if_switched_off(api)
        _refuse_if_fixed(api, name, path, content)
    except Refused as error:
        reason = str(error)
    return RoutineSource(
        path=str(path),
        text=content.decode("utf-8", "replace").removeprefix("\ufeff"),
        digest=digest_of(content),
        read_only=reason,
    )


def _refuse_if_switched_off(api: ApiContext) -> None:
    config = api.settings.config
    if not config.ui.edit:
        raise SwitchedOff(
            f"routines are not edited here; `edit = true` under [ui] in {display(config.file)} "
            "allows it"
        )


def _refuse_if_fixed(api: ApiContext, name: str, path: Path, content: bytes) -> None:
    """Raise Refused for a file that is not edited here, whatever its new text is."""
    if path.parent == api.agent_routines.folder:
        raise Refused(explain_agent_owned(name))
    resolve_source(path, api.settings.config.routines_path)
    refuse_file_of_another(path)
    try:
        content.decode()
    except UnicodeDecodeError:
        raise Refused(f"{display(path)} is not UTF-8 text; edit it with an editor") from None


def _refuse_if_changed(api: ApiContext, name: str, path: Path, digest: str) -> None:
    content = read_source(path)
    _refuse_if_fixed(api, name, path, content)
    if digest_of(content) != digest:
        raise FileChanged(f"{display(path)} was changed meanwhile")


def _write(api: ApiContext, path: Path, content: bytes, digest: str) -> None:
    if digest:
        folder = api.settings.config.routines_path
        replace_source(path, content, digest=digest, folder=folder)
    else:
        write_new(path, content.decode())


def _encode(text: str) -> bytes:
    """Return the bytes of a text. Raises InvalidRequest if it is no UTF-8, or too long."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("'text' is not UTF-8", HTTPStatus.UNPROCESSABLE_ENTITY) from None
    if len(content) > MAX_TEXT_BYTES:
        raise InvalidRequest(
            f"the text is over {MAX_TEXT_BYTES:,} bytes; edit such a file with `agentctl edit`",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    return content


def _read_tag(if_match: str) -> str:
    """Return the digest of an `If-Match`, which RFC 9110 wants in quotes. Raises InvalidRequest."""
    match = re.fullmatch(r'"?([0-9a-f]{64})"?', if_match)
    if match is None:
        raise InvalidRequest(
            f"If-Match: expected the digest of the file, as its source has it (found "
            f"{display(if_match)[:80]})",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    return match[1]


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/routines/{name}/source", show_source),
    ("PUT", "/v1/routines/{name}/source", put_source),
    ("GET", "/v1/recipes", list_recipes),
)
