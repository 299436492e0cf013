"""The option `--input` of `agentctl run` and `agentd once`: a text, a file or a pipe."""

from __future__ import annotations

import sys

# The daemon takes less, and says how much. This limit only keeps a file such as a disk image from
# filling the memory.
MAX_INPUT_BYTES = 200_000


def read_input(argument: str) -> str:
    """Return the text that the argument of `--input` means: the content of FILE for `@FILE`, what
    stdin brings for `-`, or the argument itself.

    Raises ValueError with a sentence that says why it cannot be read.
    """
    if argument != "-" and not argument.startswith("@"):
        try:
            argument.encode()  # a byte that is not UTF-8 is half of a surrogate pair
        except UnicodeEncodeError:
            raise ValueError("--input: the text is not UTF-8") from None
        return argument
    path = argument.removeprefix("@")
    place = "standard input" if argument == "-" else path
    try:
        if argument == "-":
            content = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        else:
            with open(path, "rb") as file:  # noqa: PTH123  pathlib takes 3 ms to import
                content = file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"--input {argument}: {place} cannot be read: {reason}") from None
    if len(content) > MAX_INPUT_BYTES:
        raise ValueError(f"--input {argument}: {place} has more than {MAX_INPUT_BYTES:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--input {argument}: {place} is no text in UTF-8 (byte {error.start + 1})"
        ) from None
    if not text.strip():
        raise ValueError(f"--input {argument}: there is nothing in {place}")
    return text
