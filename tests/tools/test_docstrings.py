"""Docstrings parsed into description and arguments."""

from __future__ import annotations

import pytest

from daemon.tools.docstrings import parse

GOOGLE = """Read a file,
    line by line.

    Long lines are cut.

    Args:
        path (str): Where it is,
            seen from the workspace.
        limit: How many lines: at most.
        *rest: More paths.

    Returns:
        path: not an argument
    """
SPHINX = """Read a file,
    line by line.

    Long lines are cut.

    :param str path: Where it is,
        seen from the workspace.
    :param limit: How many lines: at most.
    :type limit: int
    :param rest: More paths.
    :returns: the lines
    :raises OSError: never
    """


NUMPY = """Read a file,
    line by line.

    Long lines are cut.

    Parameters
    ----------
    path : str
        Where it is,
        seen from the workspace.
    limit : int, optional
        How many lines: at most.
    *rest
        More paths.

    Returns
    -------
    path
        not an argument
    """


@pytest.mark.parametrize("docstring", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_each_docstring_style_yields_description_and_arguments(docstring: str) -> None:
    description, arguments = parse(docstring)
    assert description == "Read a file, line by line.\n\nLong lines are cut."
    assert arguments == {
        "path": "Where it is, seen from the workspace.",
        "limit": "How many lines: at most.",
        "rest": "More paths.",
    }


def test_lists_in_a_docstring_keep_their_lines() -> None:
    assert parse("Do this:\n\n- one\n- two").description == "Do this:\n\n- one\n- two"


def test_text_after_the_arguments_joins_the_description() -> None:
    description, arguments = parse("Do it.\n\nArgs:\n    x: a number\n\nNever twice.")
    assert (description, arguments) == ("Do it.\n\nNever twice.", {"x": "a number"})


def test_arguments_documented_on_one_line_share_the_description() -> None:
    text = "Add.\n\nParameters\n----------\nx, y : int\n    A number.\n\nNotes\n-----\nFast.\n"
    assert parse(text) == ("Add.", {"x": "A number.", "y": "A number."})


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_missing_docstring_yields_no_description(docstring: str | None) -> None:
    assert parse(docstring) == ("", {})
