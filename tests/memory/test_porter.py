"""Both indexes cut words alike: what we do for PostgreSQL, FTS5 does by itself."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path

from daemon.memory.fulltext.porter import stem

ROOT = Path(__file__).parents[2]
STEMS = (
    "hop",
    "hopp",
    "relat",
    "condit",
    "valenc",
    "digit",
    "conform",
    "radic",
    "differ",
    "analog",
    "vil",
    "oper",
    "y",
)
ENDINGS = (
    *(
        "",
        "s",
        "es",
        "ies",
        "sses",
        "ed",
        "eed",
        "ing",
        "y",
        "ational",
        "tional",
        "enci",
        "izer",
        "bli",
        "alli",
    ),
    *(
        "entli",
        "ousli",
        "ization",
        "ator",
        "alism",
        "iveness",
        "fulness",
        "aliti",
        "iviti",
        "biliti",
        "logi",
        "icate",
    ),
    *(
        "ative",
        "alize",
        "ical",
        "ful",
        "ness",
        "ance",
        "er",
        "able",
        "ant",
        "ement",
        "ment",
        "ion",
        "sion",
        "tion",
    ),
    *("ism", "ate", "iti", "ous", "ive", "ize", "e", "ll", "le"),
)


def test_stemmer_equals_the_porter_stemmer_of_fts5() -> None:
    text = " ".join(
        path.read_text("utf-8") for path in (*(ROOT / "docs").glob("*.md"), ROOT / "CHANGELOG.md")
    )
    words = sorted(
        {
            *re.findall(r"[a-z]+", text.lower()),
            *map("".join, product(STEMS, ENDINGS)),
            "eed",
            "ies",
            "sses",
        }
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            (  # noqa: UP034
                "CREATE VIRTUAL TABLE t USING fts5 (a, tokenize = 'porter unicode61 "
                "remove_diacritics 2')"
            )
        )
        connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab ('t', 'instance')")
        connection.executemany("INSERT INTO t (rowid, a) VALUES (?, ?)", enumerate(words))
        fts5_stems = dict(connection.execute("SELECT doc, term FROM v"))
    assert len(words) > 2_000
    assert {word: stem(word) for word in words} == {
        word: fts5_stems[index] for index, word in enumerate(words)
    }
