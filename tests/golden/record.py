"""Make golden files that are not there yet: `python -m tests.golden.record [SCENARIO…]`.

A file that exists is left alone, and said to be: a golden file is what the product showed at the
commit that it was made from. A new scenario, or a new surface, is recorded before the behaviour
that it is to hold is changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.golden.compare import DIGESTS, RECORDED, digests_of, golden_texts
from tests.golden.driver import Stage
from tests.golden.scenarios import SCENARIOS, Scenario


def surfaces_of(scenario: Scenario) -> dict[str, str]:
    """Live through a scenario, and return the normalised text of each surface."""
    stage = Stage()
    try:
        scenario(stage)
        return stage.surfaces(scenario.__name__)
    finally:
        stage.close()


def write(folder: Path, surfaces: dict[str, str]) -> list[Path]:
    """Write the surfaces that are not there yet; return the files that are, and were left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    left = []
    for name, text in surfaces.items():
        try:
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            left.append(folder / name)
    return left


def main(names: list[str]) -> int:
    """Record the scenarios of these names, by default all."""
    left = []
    for scenario in SCENARIOS:
        if not names or scenario.__name__ in names:
            print(scenario.__name__, flush=True)
            left += write(RECORDED / scenario.__name__, surfaces_of(scenario))
    for path in left:
        print(f"left alone, as it is there: {path.relative_to(RECORDED.parent)}", file=sys.stderr)
    DIGESTS.write_text(digests_of(golden_texts()))
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
