"""Embed with a local model file and onnxruntime (extra `onnx`); nothing is downloaded.

The usual exports of sentence transformers fit: `model.onnx` with a `tokenizer.json`. If a model
returns a vector per token, the mean of the vectors is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from daemon.memory.embedders.base import Embedder, EmbedderFailed

# Tokens per text: segments are shorter, and an item names its subject at the beginning.
_TOKENS = 256
# Threads per call: the other cores are left to the runs.
_THREADS = 1


class Onnx(Embedder):
    """Run a model in a thread; the libraries and files are loaded by the first call."""

    def __init__(self, *, model_file: Path, tokenizer_file: Path) -> None:
        self.name = f"onnx:{model_file.parent.name}/{model_file.name}"
        self._model_file, self._tokenizer_file = model_file, tokenizer_file
        self._libraries: tuple[Any, Any, Any] | None = None
        # one call at a time: a session is as parallel as its threads
        self._lock = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        async with self._lock:
            return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> list[list[float]]:
        numpy, session, tokenizer = self._load()
        encodings = tokenizer.encode_batch(texts)
        inputs = {
            "input_ids": numpy.array([encoding.ids for encoding in encodings], dtype=numpy.int64),
            "attention_mask": numpy.array(
                [encoding.attention_mask for encoding in encodings], dtype=numpy.int64
            ),
            "token_type_ids": numpy.array(
                [encoding.type_ids for encoding in encodings], dtype=numpy.int64
            ),
        }
        input_names = {encoding.name for encoding in session.get_inputs()}
        try:
            (output, *_) = session.run(
                None, {name: value for name, value in inputs.items() if name in input_names}
            )
        # onnxruntime's exceptions have no common base, and their module has moved twice
        except Exception as error:
            raise EmbedderFailed(f"{self._model_file}: {error}") from error
        if output.ndim == 3:
            mask = inputs["attention_mask"][:, :, None]
            output = (output * mask).sum(axis=1) / numpy.maximum(mask.sum(axis=1), 1)
        if output.ndim != 2:
            raise EmbedderFailed(
                f"{self._model_file}: expected vectors, found shape {output.shape}"
            )
        return [[float(value) for value in row] for row in output]

    def _load(self) -> tuple[Any, Any, Any]:
        if self._libraries is None:
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
            self._libraries = numpy, session, tokenizer
        return self._libraries
