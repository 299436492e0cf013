"""Ask about one text from outside; a corpus of texts is measured by calling this for each.

`python -m tests.bench.injection FILE...` counts in how many texts each rule matches. A file is one
text, or, if its name ends in .jsonl, one text a line, as the field `text`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from daemon.injection.check import InjectionFinding, check_tool_result, find_rules
from daemon.injection.signs import load_rules


def check(text: str) -> InjectionFinding:
    """Return what a page fetched from the network would be judged to be."""
    return check_tool_result("http_request", text)


def _texts(path: Path) -> Iterator[str]:
    if path.suffix == ".jsonl":
        yield from (json.loads(line)["text"] for line in path.read_text().splitlines())
    else:
        yield path.read_text(errors="replace")


def main(names: list[str]) -> None:
    """Print how many texts of these files each rule matches."""
    counts: Counter[str] = Counter()
    total = 0
    for text in (text for name in names for text in _texts(Path(name))):
        total += 1
        counts.update(find_rules(text))
    for language in ("en", "zh", "others", "substrings"):
        for rule in load_rules(language).rules:
            print(f"{counts[rule.id]:7}  {rule.id} ({rule.sign})")
    print(f"{total:7}  texts")


if __name__ == "__main__":
    main(sys.argv[1:])
