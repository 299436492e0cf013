"""A model in a file of the user's, run here by onnxruntime (extra `onnx`); nothing is downloaded.

The usual exports of sentence transformers fit: `model.onnx` and the `tokenizer.json` beside it.
Where a model gives a vector per token, their mean is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from daemon.memory.embedders.base import Embedder, EmbedderFailed

# Pieces of remembered texts are shorter; of an item the beginning says what it is about.
_TOKENS = 256
# One core: the daemon's runs need the others more.
_THREADS = 1


class Onnx(Embedder):
    """Run a model in a thread; the libraries are imported and the files read on first need."""

    def __init__(self, *, model_file: Path, tokenizer_file: Path) -> None:
        self.name = f"onnx:{model_file.parent.name}/{model_file.name}"
        self._model_file, self._tokenizer_file = model_file, tokenizer_file
        self._loaded: tuple[Any, Any, Any] | None = None
        # one text after the other: a session is as parallel as its threads
        self._turn = asyncio.Lock()

    async def warm(self) -> None:
        await self.embed(["warm"])

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        async with self._turn:
            return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> list[list[float]]:
        numpy, session, tokenizer = self._load()
        encoded = tokenizer.encode_batch(texts)
        given = {
            "input_ids": numpy.array([each.ids for each in encoded], dtype=numpy.int64),
            "attention_mask": numpy.array(
                [each.attention_mask for each in encoded], dtype=numpy.int64
            ),
            "token_type_ids": numpy.array([each.type_ids for each in encoded], dtype=numpy.int64),
        }
        wanted = {each.name for each in session.get_inputs()}
        try:
            (found, *_) = session.run(
                None, {name: value for name, value in given.items() if name in wanted}
            )
        except (
            Exception
        ) as error:  # its exceptions have no common base, and are in a module that moved twice
            raise EmbedderFailed(f"{self._model_file}: {error}") from error
        if found.ndim == 3:
            mask = given["attention_mask"][:, :, None]
            found = (found * mask).sum(axis=1) / numpy.maximum(mask.sum(axis=1), 1)
        if found.ndim != 2:
            raise EmbedderFailed(f"{self._model_file}: expected vectors, found shape {found.shape}")
        return [[float(value) for value in row] for row in found]

    def _load(self) -> tuple[Any, Any, Any]:
        if self._loaded is None:
            try:
                numpy, runtime, tokenizers = map(
                    import_module, ("numpy", "onnxruntime", "tokenizers")
                )
            except ImportError as error:
                hint = "pip install 'agentd-routines[onnx]'"
                raise EmbedderFailed(f"embedder onnx needs {error.name}: {hint}") from error
            try:
                tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer_file))
                options = runtime.SessionOptions()
                options.intra_op_num_threads = _THREADS
                session = runtime.InferenceSession(
                    str(self._model_file), options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # see above
                raise EmbedderFailed(f"{self._model_file} cannot be loaded: {error}") from error
            tokenizer.enable_truncation(_TOKENS)
            tokenizer.enable_padding()
            self._loaded = numpy, session, tokenizer
        return self._loaded
