"""What a vendor answers when it does not like a request, and the rules that all of them share."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class Refusal(Exception):
    """A request that the vendor turns away."""

    def __init__(
        self, message: str, *, status: int = 400, code: str | None = None, type_: str | None = None
    ) -> None:
        self.status, self.code, self.type = status, code, type_
        super().__init__(message)


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def require(condition: object, message: str, **more: Any) -> None:
    """Raise Refusal unless the condition holds."""
    if not condition:
        raise Refusal(message, **more)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What this fake knows of a model, by its name."""

    family: str
    """openai, deepseek, glm, kimi, qwen, anthropic, minimax, or a local server: vllm, ollama,
    llamacpp, lmstudio.
    """
    reasoning: bool
    """Whether OpenAI's reasoning models' rules hold: no temperature, max_completion_tokens."""

    @property
    def is_hosted(self) -> bool:
        """Hosted vendors want a key and refuse fields that they do not know; local servers do
        neither.
        """
        return self.family not in ("vllm", "ollama", "llamacpp", "lmstudio", "local")


# From the SDKs of the vendors; not every model has every level.
EFFORTS = {
    "openai": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "anthropic": ("low", "medium", "high", "xhigh", "max"),
    "deepseek": ("low", "medium", "high", "max"),
}


def check_effort(model: Model, field: str, effort: object) -> None:
    """Refuse a level that the vendor does not have, and any for a model that does not reason."""
    efforts = EFFORTS.get(model.family, ()) if model.is_hosted else (effort,)
    if model.family == "openai" and not model.reasoning:
        efforts = ()
    require(
        effort is None or effort in efforts,
        f"Unsupported value: '{field}' does not support {effort!r} with this model.",
        code="unsupported_value",
    )


_HOSTED = {
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "deepseek": "deepseek",
    "glm": "glm",
    "kimi": "kimi",
    "moonshot": "kimi",
    "qwen": "qwen",
    "claude": "anthropic",
    "minimax": "minimax",
}
_LOCAL = ("vllm", "ollama", "llamacpp", "lmstudio")


def model_named(name: str) -> Model:
    """Tell the family of a model; `vllm/anything` and its like are local servers, unknown names a
    lenient local one.
    """
    lower_name = name.lower()
    family = next((local for local in _LOCAL if lower_name.startswith(local + "/")), None)
    family = family or next(
        (family for prefix, family in _HOSTED.items() if lower_name.startswith(prefix)), "local"
    )
    return Model(family=family, reasoning=bool(re.match(r"gpt-[5-9]|o\d", lower_name)))


def tokens(value: object) -> int:
    """Count as tokenizers roughly do."""
    return len(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) // 4


def parts(text: str | None, size: int) -> list[str]:
    """Cut a text as a stream does."""
    return [text[begin : begin + size] for begin in range(0, len(text), size)] if text else []


def digest(*parts: object) -> str:
    """Hash JSON values; key order, nulls and cache markers make no difference, as with the
    vendors.
    """
    text = json.dumps([_bare(part) for part in parts], sort_keys=True)
    return hashlib.blake2b(text.encode(), key=b"the vendor's secret", digest_size=12).hexdigest()


def _bare(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: _bare(item)
            for key, item in value.items()
            if item is not None and key != "cache_control"
        }
    return [_bare(item) for item in value] if isinstance(value, list) else value


def check_unknown(body: Json, known_keys: Iterable[str], where: str = "") -> None:
    """Refuse a field that the vendor does not know, in OpenAI's words."""
    for key in body:
        require(key in known_keys, f"Unknown parameter: '{where}{key}'.", code="unknown_parameter")


def check_cache_key(body: Json) -> None:
    """Refuse a key of the prompt cache that is too long, in OpenAI's words."""
    length = len(body.get("prompt_cache_key", ""))
    require(
        length <= 64,
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, "
        f"but got a string with length {length} instead.",
        code="string_above_max_length",
    )


_PICTURES = {
    "image/png": b"\x89PNG",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def check_image(media_type: object, data: object) -> None:
    """Refuse a picture that cannot be decoded, or is another than it says."""
    try:
        picture = base64.b64decode(str(data), validate=True)
    except ValueError:
        raise Refusal("Could not process image: invalid base64") from None
    mark = _PICTURES.get(str(media_type))
    require(
        mark is not None, f"Invalid media type: {media_type}. Supported: {', '.join(_PICTURES)}"
    )
    require(
        picture.startswith(mark or b""),
        f"Image does not match the provided media type {media_type}",
        code="invalid_image_format",
    )
    require(len(picture) <= 5 * 1024 * 1024, "image exceeds 5 MB maximum")
    if picture.startswith(b"\x89PNG") and len(picture) >= 24:
        size = int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])
        require(
            max(size) <= 8000,
            "At least one of the image dimensions exceed max allowed size: 8000 pixels",
        )


def check_image_url(url: object) -> None:
    """Refuse a data URL that holds no picture."""
    match = re.fullmatch(r"data:([a-z/]+);base64,(.*)", str(url))
    require(match, "Invalid image_url", code="invalid_image_url")
    assert match
    check_image(match[1], match[2])


def check_function(function: object, where: str, names: set[str]) -> None:
    """Check the declaration of one function as OpenAI does."""
    require(
        isinstance(function, dict),
        f"Missing required parameter: '{where}'.",
        code="missing_required_parameter",
    )
    assert isinstance(function, dict)
    name = function.get("name")
    require(
        isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name),
        f"Invalid '{where}.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.",
        code="invalid_value",
    )
    require(name not in names, f"Function names must be unique: '{name}'.", code="invalid_value")
    names.add(str(name))
    parameters = function.get("parameters")
    if parameters is not None:
        require(
            isinstance(parameters, dict) and parameters.get("type") == "object",
            (
                f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: "
                '"object"\'.'
            ),
            code="invalid_function_parameters",
        )
        _check_schema(parameters, str(name), strict=bool(function.get("strict")))


def _check_schema(schema: object, name: str, *, strict: bool) -> None:
    if not isinstance(schema, dict):
        return
    problem = f"Invalid schema for function '{name}': "
    require(
        schema.get("type") != "array" or "items" in schema or "prefixItems" in schema,
        problem + "array schema missing items.",
        code="invalid_function_parameters",
    )
    for keyword in ("default", "oneOf", "allOf", "not", "patternProperties") if strict else ():
        require(
            keyword not in schema,
            f"{problem}'{keyword}' is not permitted.",
            code="invalid_function_parameters",
        )
    properties = schema.get("properties", {})
    if strict and schema.get("type") in ("object", ["object", "null"]):
        require(
            schema.get("additionalProperties") is False
            and set(schema.get("required", ())) == set(properties),
            problem
            + (
                "'additionalProperties' must be false and 'required' include every key in "
                "properties."
            ),
            code="invalid_function_parameters",
        )
    inner = (
        *properties.values(),
        schema.get("items"),
        *schema.get("anyOf", ()),
        *schema.get("$defs", {}).values(),
    )
    for inner_schema in inner:
        _check_schema(inner_schema, name, strict=strict)


def check_model(body: Json) -> Model:
    """Refuse a request without a model, or for one that does not exist."""
    name = body.get("model")
    require(isinstance(name, str), "you must provide a model parameter")
    require(
        "no-such-model" not in str(name),
        f"The model `{name}` does not exist or you do not have access to it.",
        status=404,
        code="model_not_found",
        type_="not_found_error",
    )
    return model_named(str(name))
