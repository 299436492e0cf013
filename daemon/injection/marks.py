"""Find what is made to look like the frame around a text: chat templates, voices of the system, ends of tool results.

They are replaced by words that survive the loss of punctuation, so that signs can be written about them.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from daemon.injection.signs import Places, phrase, words

_CHAT, _VOICE, _FENCE = " zqchat ", " zqvoice ", " zqfence "


@dataclass(frozen=True, slots=True)
class _Mark:
    """One kind of frame, and the words without which it cannot stand."""

    says: str
    pattern: re.Pattern[str]
    anchors: frozenset[str]
    needs: str = ""
    """A character without which it cannot stand either."""
    back: int = 16
    ahead: int = 80


_WHO = r"(?:system|sysadmin|admin|administrator|supervisor|security team)"
_WITH_TITLE = r"(?:sys|root|openai|anthropic|developer|operator|platform|moderator)"
_WHAT = (
    "(?:prompt|message|msg|notice|note|instructions?|override|update|alert|command|directive|announcement|admin|policy)"
)
_PARTS = {"WHO": _WHO, "TITLED": _WITH_TITLE, "WHAT": _WHAT}
_AUTHORITIES = words("""
    system sys admin administrator root developer operator supervisor platform security openai anthropic moderator
    sysadmin instruction instructions important override priority information hidden secret prompt ai assistant agent
    llm user human
    """)
_MARKS = (
    _Mark(
        _CHAT,
        phrase(
            r"""
            <\|\W{0,2}(?:im_start|im_end|im_sep|system|user|assistant|endoftext|end|start_header_id|end_header_id
              |eot_id
              |begin_of_text|end_of_text|start|channel|message|return|call|tool_call|tool_response
              |endofprompt)\W{0,2}\|>
            """
        ),
        words("im system user assistant endoftext end start eot begin channel message return call tool endofprompt"),
        "<|",
    ),
    _Mark(
        _CHAT,
        re.compile(r"<｜?(?:user|assistant|system|end▁of▁sentence|begin▁of▁sentence)｜>"),
        words("user assistant system end begin"),
        "｜",
    ),
    _Mark(_CHAT, re.compile(r"</?assistant>|</user>"), words("assistant user"), "<", ahead=20),
    _Mark(
        _VOICE,
        re.compile(r"[\"']role[\"'] ?: ?[\"'](?:system|developer)[\"'] ?, ?[\"']content[\"'] ?: ?[\"']?"),
        words("role"),
    ),
    _Mark(_CHAT, re.compile(r"\[/?inst\]|<</?sys>>"), words("inst sys"), ""),
    _Mark(_CHAT, re.compile(r"<(?:start|end)_of_turn>"), words("turn"), "_of_turn>"),
    _Mark(
        _CHAT,
        re.compile(
            r"#{3,4} ?(?:instructions?|system|system prompt|response|human|assistant|user|new instructions?) ?(?::|$)",
            re.MULTILINE,
        ),
        words("instruction instructions system response human assistant user"),
        "###",
    ),
    _Mark(
        _CHAT,
        re.compile(r"(?:^|\n\n|(?<=[.:>\"'] ))\s{0,3}(?:human|assistant) ?: ?(?=\S)"),
        words("human assistant"),
        ":",
    ),
    _Mark(
        _VOICE,
        re.compile(
            phrase(
                r"""
                ^[ \t>#*\-\[\](\"'`{<=|!/]{0,10}(?:(?:new|important|urgent|critical|updated
                  |latest) )?(?:<WHO>(?: <WHAT>)?|<TITLED> <WHAT>)
                [ \t]{0,2}[\])}>*\"'`|]{0,4}[ \t]{0,2}(?::|：|-{1,2}>|=>|\n|—)
                """,
                **_PARTS,
            ).pattern,
            re.MULTILINE,
        ),
        _AUTHORITIES,
        back=24,
    ),
    _Mark(
        _VOICE,
        phrase(
            r"""
            [\[<【]{1,3}/?[ \t]?(?:(?:system|sys|admin|administrator|developer|root|operator|instructions?)
              (?:[ _-](?:<WHAT>|only|mode|reminder|context|rules?))?
            |(?:important|hidden|secret|prompt|ai|assistant|agent|llm|user|human|priority)[ _-](?:<WHAT>|only
            |reminder|rules?)
            |information|important)[ \t]?:?[\]>】]{1,3}
            """,
            **_PARTS,
        ),
        _AUTHORITIES,
        back=6,
        ahead=40,
    ),
    _Mark(_VOICE, re.compile(r"\b(?:system|admin|administrator|developer|root) override\b"), words("override")),
    _Mark(
        _VOICE,
        phrase(r"(?:(?<=[.!?\"':>,] )|(?<=[\"'>]))(?:system|developer|admin(?:istrator)?)(?: <WHAT>)? ?: ", **_PARTS),
        words("system developer admin administrator"),
        ":",
    ),
    _Mark(
        _FENCE,
        phrase(
            r"""
            </?(?:tool_?(?:result|response|output)s?|function_?(?:result|response|output)s?|untrusted[\w-]*
              |user_(?:input|query|message)
              |search_results?|file_content|email_body|retrieved[\w-]*)(?=[ >])[^<>\n]{0,40}>
            |</(?:tool_?calls?|function_?calls?|external[\w-]*|observation|document|tool|context|data|web_?page
            |result|content)>
            """
        ),
        words("""
            tool toolresult result results response output call function untrusted external observation document search
            context user data retrieved web webpage invoke file email content
            """),
        "<",
        back=20,
    ),
    _Mark(
        _FENCE,
        phrase(
            r"""
            [-=*#\x7e_\[(<]{2,}[ \t]*(?:end|begin|start|close)[ \t_-]{1,2}(?:of[ \t_-]{1,2})?(?:the )?
            (?:tool|function|untrusted|external|data|document|results?|outputs?|context|user|search|web|file
              |email|input
              |quoted|text|content|prompt|system)[^\n]{0,40}
            """
        ),
        words("end begin start close"),
        back=12,
    ),
    _Mark(
        _FENCE,
        phrase(
            r"""
            \bend of (?:the )?(?:tool|function|untrusted|external|search) (?:results?|outputs?|response|data
              |content|input)\b
            """
        ),
        words("end"),
        "end of ",
    ),
)


_ANCHORS = frozenset[str]().union(*(mark.anchors for mark in _MARKS))


def marked(text: str, present: Set[str]) -> str:
    """Return folded text, which holds these words, with the frames of other voices as words; itself if it has none."""
    held = _ANCHORS & present
    places = Places(text)
    for mark in _MARKS if held else ():
        found = mark.anchors & held
        if not found or mark.needs not in text:
            continue
        spans = {
            match.span(): None
            for begin, end in places.around(found, mark.back, mark.ahead)
            for match in mark.pattern.finditer(text, begin, end)
        }
        if spans:
            text = _replaced(text, sorted(spans), mark.says)
            places = Places(text)
    return text


def _replaced(text: str, spans: list[tuple[int, int]], by: str) -> str:
    pieces: list[str] = []
    at = 0
    for begin, end in spans:
        if begin >= at:
            pieces += [text[at:begin], by]
            at = end
    return "".join([*pieces, text[at:]])
