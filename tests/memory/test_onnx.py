"""The embedder that runs a model of the user's here: with a tiny model, made on the spot."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.memory.embedders.base import EmbedderFailed
from daemon.memory.embedders.onnx import Onnx
from daemon.memory.embedding_index import EmbeddingIndex
from daemon.memory.memory import Memory
from tests.memory.conftest import Library

WORDS = ["[PAD]", "[UNK]", "car", "automobile", "dog", "hound", "the", "sleeps", "shines"]
# Of each word: synonyms point in the same direction.
TABLE = [
    [0, 0, 0, 0],
    [0, 0, 0, 0.1],
    [1, 0, 0, 0],
    [1, 0.1, 0, 0],
    [0, 0, 1, 0],
    [0, 0.1, 1, 0],
] + [[0, 0, 0, 0.2]] * 3


def field(number: int, content: bytes | int) -> bytes:
    """Return one field of a protocol buffer (https://protobuf.dev/programming-guides/encoding)."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def value_info(name: str, kind: int, *dimensions: str) -> bytes:
    shape = b"".join(field(1, field(2, dimension.encode())) for dimension in dimensions)
    return field(1, name.encode()) + field(2, field(1, field(1, kind) + field(2, shape)))


def model() -> bytes:
    """Return a model (onnx.proto) of one node: it looks each token up in a table."""
    numbers = [value for row in TABLE for value in row]
    table = b"".join(field(1, n) for n in (len(TABLE), len(TABLE[0]))) + field(2, 1)
    table += field(8, b"table") + field(9, struct.pack(f"<{len(numbers)}f", *numbers))
    gather = field(1, b"table") + field(1, b"input_ids") + field(2, b"out") + field(4, b"Gather")
    graph = field(1, gather) + field(2, b"g") + field(5, table)
    graph += field(11, value_info("input_ids", 7, "batch", "length"))
    graph += field(12, value_info("out", 1, "batch", "length", "width"))
    return field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13))


def tokenizer() -> str:
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        }
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a model and its tokenizer."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model())
    (folder / "tokenizer.json").write_text(tokenizer())
    return folder


def embedder(folder: Path) -> Onnx:
    for package in ("onnxruntime", "numpy", "tokenizers"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'agentd-routines[onnx]'")
    return Onnx(model_file=folder / "model.onnx", tokenizer_file=folder / "tokenizer.json")


async def test_an_onnx_embedding_is_the_mean_of_its_tokens(files: Path) -> None:
    short, long = await embedder(files).embed(["car", "the automobile shines"])
    assert short == pytest.approx([1, 0, 0, 0])
    assert long == pytest.approx([1 / 3, 0.1 / 3, 0, 0.4 / 3])


async def test_texts_are_found_by_onnx_embeddings(files: Path, library: Library) -> None:
    await library.run("01A", "the automobile shines", "the hound sleeps")
    library.memory = Memory(
        library.db,
        clock=library.clock.now,
        embedding_index=EmbeddingIndex(embedder(files), query_timeout=30),
    )
    assert library.memory.embedding_index
    await library.memory.embedding_index.backfill(library.memory.memory_store)
    assert await library.find_texts("car", 1) == ["the automobile shines"]
    assert await library.find_texts("dog", 1) == ["the hound sleeps"]


async def test_an_invalid_onnx_file_is_reported(files: Path) -> None:
    (files / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(EmbedderFailed, match=r"model\.onnx cannot be loaded"):
        await embedder(files).embed(["word"])


BARE = """
import asyncio, sys
from pathlib import Path
sys.modules["onnxruntime"] = sys.modules["numpy"] = None
from daemon.memory.embedders.onnx import Onnx
try:
    embedder = Onnx(model_file=Path("model.onnx"), tokenizer_file=Path("tokenizer.json"))
    asyncio.run(embedder.embed(["word"]))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_missing_onnx_library_names_the_install_command() -> None:
    root = Path(__file__).parents[2]
    output = subprocess.run(
        [sys.executable, "-c", BARE], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert (
        output == "EmbedderFailed embedder onnx needs numpy: pip install 'agentd-routines[onnx]'\n"
    )
