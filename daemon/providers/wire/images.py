"""Images: detect their type and size, check the limits of vendors, encode them."""

from __future__ import annotations

import base64

from daemon.models import Image

# Vendors answer 400 to a wrong media type, so it is detected from the bytes, not the file's name.
_SIGNATURES = (
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF87a"),
    ("image/gif", b"GIF89a"),
)
# The limits of Claude, the strictest of all vendors. What is measured is the base64 of an image: at
# most 5 MiB at Amazon and Google, and 10 MiB at Anthropic itself, where it was 5 MiB before. Base64
# makes four bytes of three: this is the size of a file whose base64 has 5 MiB.
MAX_BYTES = 5 * 2**20 * 3 // 4
# Pixels of an edge.
MAX_EDGE = 8_000
# Markers of the JPEG frame that has the dimensions: SOF0 to SOF15 without DHT, JPG and DAC.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def parse_image(data: bytes) -> Image:
    """Return an image for a model. Raises ValueError with the reason if vendors do not
    accept it.
    """
    media_type = next(
        (media_type for media_type, signature in _SIGNATURES if data.startswith(signature)), None
    )
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        media_type = "image/webp"
    if media_type is None:
        raise ValueError("is no PNG, JPEG, GIF or WebP picture")
    width, height = _dimensions(data)
    if max(width, height) > MAX_EDGE:
        raise ValueError(f"has {width} x {height} pixels; vendors take {MAX_EDGE} at most")
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"has {len(data) / 1e6:.1f} MB; vendors take {MAX_BYTES / 1e6:.1f} MB at most"
        )
    return Image(data=data, media_type=media_type)


def _dimensions(data: bytes) -> tuple[int, int]:
    """Return (width, height) by the header of an image; zeros if they are not known."""
    if data.startswith(b"\x89PNG") and len(data) >= 24:
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if data.startswith(b"GIF8") and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data.startswith(b"\xff\xd8"):
        return _jpeg_dimensions(data)
    if data.startswith(b"RIFF"):
        return _webp_dimensions(data)
    return 0, 0


def _webp_dimensions(data: bytes) -> tuple[int, int]:
    """Return (width, height) by the first chunk of a WebP file (RFC 9649)."""
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8 " and len(data) >= 30:  # each in 14 bits; the upper two are a scale
        width, height = (int.from_bytes(data[begin : begin + 2], "little") for begin in (26, 28))
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(data) >= 25:  # in 14 bits each, less one
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return 0, 0


def _jpeg_dimensions(data: bytes) -> tuple[int, int]:
    """Walk from marker to marker up to the frame, and return its (width, height)."""
    position = 2
    while position + 9 <= len(data) and data[position] == 0xFF:
        if data[position + 1] in _FRAME_MARKERS:
            height = int.from_bytes(data[position + 5 : position + 7])
            width = int.from_bytes(data[position + 7 : position + 9])
            return width, height
        position += 2 + int.from_bytes(data[position + 2 : position + 4])
    return 0, 0


def to_base64(image: Image) -> str:
    """Return the bytes of an image in base64."""
    return base64.b64encode(image.data).decode()


def to_data_url(image: Image) -> str:
    """Return an image as a data: URL."""
    return f"data:{image.media_type};base64,{to_base64(image)}"
