"""Pictures: shown to models that see, told to those that do not, and never sent as what they are
not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from daemon.models import Image, LLMMessage
from daemon.providers.wire.images import MAX_BYTES, MAX_EDGE, parse_image, to_base64
from tests.fakes.vendor import FakeVendor
from tests.providers.calls import Opener, Talk, user


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\2\0\0\0")
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a\1\0\1\0rest", "image/gif"),
        (b"RIFF\0\0\0\0WEBPrest", "image/webp"),
    ],
)
def test_image_type_is_detected_from_its_bytes(data: bytes, kind: str) -> None:
    assert parse_image(data).media_type == kind


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"RIFF\0\0\0\0WAVE", b"<svg/>"])
def test_file_that_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no PNG, JPEG, GIF or WebP"):
        parse_image(data)


def test_a_too_large_picture_is_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match=r"has 6.0 MB; vendors take 3.9 MB"):
        parse_image(PNG.ljust(6_000_000, b"\0"))


def test_the_largest_picture_has_no_more_base64_than_vendors_take() -> None:
    image = parse_image(PNG.ljust(MAX_BYTES, b"\0"))
    assert len(to_base64(image)) == 5 * 2**20


def _webp(kind: bytes, data: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + len(data).to_bytes(4, "little") + data


def _lossy_webp(width: int, height: int) -> bytes:
    # a scale of 1 in the upper two bits, which says nothing of the size
    size = b"".join((edge | 0x4000).to_bytes(2, "little") for edge in (width, height))
    return _webp(b"VP8 ", b"\x30\1\0\x9d\1\x2a" + size)


def _lossless_webp(width: int, height: int) -> bytes:
    size = width - 1 | height - 1 << 14
    return _webp(b"VP8L", b"\x2f" + size.to_bytes(4, "little"))


def _extended_webp(width: int, height: int) -> bytes:
    size = b"".join((edge - 1).to_bytes(3, "little") for edge in (width, height))
    return _webp(b"VP8X", b"\0\0\0\0" + size)


@pytest.mark.parametrize("webp", [_lossy_webp, _lossless_webp, _extended_webp])
def test_a_webp_picture_with_too_long_an_edge_is_refused(
    webp: Callable[[int, int], bytes],
) -> None:
    parse_image(webp(MAX_EDGE, MAX_EDGE))
    with pytest.raises(ValueError, match="has 8001 x 16 pixels"):
        parse_image(webp(8001, 16))
    with pytest.raises(ValueError, match="has 16 x 8001 pixels"):
        parse_image(webp(16, 8001))


SEEING = ("openai responses", "openai chat", "claude opus", "minimax")


@pytest.mark.parametrize("way", SEEING)
async def test_a_model_with_vision_gets_pictures_before_the_text(
    way: str, provider_for: Opener
) -> None:
    message = LLMMessage(
        role="user",
        content="What is this?",
        images=(parse_image(PNG), parse_image(b"\xff\xd8\xff rest")),
    )
    async with FakeVendor(["Red.", "Still red."]) as vendor:
        talk = Talk(provider_for(way, vendor), messages=[message])
        await talk.ask()
        talk.messages.append(LLMMessage(role="user", images=(parse_image(PNG),)))
        await talk.ask()
    assert vendor.refusals == []
    body = vendor.requests[0].body
    kinds = [part["type"] for part in (body.get("messages") or body["input"])[0]["content"]]
    assert kinds in (
        ["image_url", "image_url", "text"],
        ["input_image", "input_image", "input_text"],
        ["image", "image", "text"],
    )


@pytest.mark.parametrize("way", SEEING)
async def test_vendors_refuse_a_picture_of_a_wrong_type(way: str, provider_for: Opener) -> None:
    wrong = LLMMessage(role="user", content="?", images=(Image(data=PNG, media_type="image/jpeg"),))
    async with FakeVendor(["x"]) as vendor:
        with pytest.raises(Exception, match="does not match"):
            await provider_for(way, vendor).chat([wrong])


async def test_a_model_without_vision_gets_a_note_about_pictures(
    provider_for: Opener,
) -> None:
    async with FakeVendor(["I cannot see.", "Nor that.", "Hm."]) as vendor:
        for provider in (
            provider_for("deepseek", vendor),
            provider_for("claude opus", vendor, capabilities={"images": False}),
            provider_for("minimax", vendor, model="MiniMax-M2.5"),
        ):
            message = LLMMessage(
                role="user", content="Look.", images=(parse_image(PNG), parse_image(PNG))
            )
            await provider.chat([message, user("Well?")])
    assert vendor.refusals == []
    assert all(
        "2 images were left out: this model sees none" in request.raw.decode()
        for request in vendor.requests
    )
    assert not any("base64" in request.raw.decode() for request in vendor.requests)
