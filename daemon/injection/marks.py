# ruff: noqa: E501 - a phrase is read as one line
"""Find what is made to look like the frame around a text: chat templates, voices of the system, ends of tool results.

They are replaced by words that survive the loss of punctuation, so that signs can be written about them.
"""

from __future__ import annotations

import re

CHAT, VOICE, FENCE = " zqchat ", " zqvoice ", " zqfence "

_CHAT = re.compile(
    r"<\|\W{0,2}(?:im_start|im_end|im_sep|system|user|assistant|endoftext|end|start_header_id|end_header_id|eot_id|begin_of_text"
    r"|end_of_text|start|channel|message|return|call|tool_call|tool_response|sep|pad|endofprompt|begin▁of▁sentence)\W{0,2}\|>"
    r"|<[｜|](?:user|assistant|system|end▁of▁sentence|begin▁of▁sentence)[｜|]>"
    r"|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>|</?s>(?=\s*\[?(?:inst|<))|\[/?(?:system|assistant)_prompt\]"
    r"|^\s{0,3}#{2,4} ?(?:instructions?|system|system prompt|response|human|assistant|user|new instructions?) ?:?\s*$"
    r"|(?:^|\n\n)\s{0,3}(?:human|assistant) ?: ?(?=\S)",
    re.MULTILINE,
)
_VOICE = re.compile(
    r"^[ \t>#*\-\[\](\"'`{<=|!/]{0,10}(?:(?:new |important |urgent |critical |updated |latest )?(?:system|sys|admin|administrator|root|developer|operator|supervisor"
    r"|platform|security team|openai|anthropic|moderator|sysadmin)(?: (?:prompt|message|notice|note|instructions?|override|update|alert|command|directive|announcement|admin|notification|policy))?)"
    r"[ \t]{0,2}[\])}>*\"'`|]{0,4}[ \t]{0,2}(?::|：|-{1,2}>|=>|\n|—)"
    r"|[\[(<{]{1,3}/?[ \t]?(?:system|sys|admin|administrator|developer|root|operator|instructions?|important|override|priority|information|hidden|secret|prompt|ai|assistant|agent|llm|user|human)"
    r"(?:[ _-](?:prompt|message|msg|notice|note|instructions?|override|update|alert|command|directive|only|admin|mode|reminder|context|rules?|policy))?[ \t]?:?[\])>}]{1,3}"
    r"|\b(?:system|admin|administrator|developer|root) (?:override|overide)\b"
    r"|(?<=[.!?\"'] )(?:system|developer|admin(?:istrator)?)(?: (?:message|note|notice|prompt|instruction|override))? ?: ",
    re.MULTILINE,
)
_FENCE = re.compile(
    r"</?(?:tool_?(?:result|response|output|call)s?|function_?(?:result|call|response|output)s?|untrusted[\w-]*|external[\w-]*|observation|document|search_results?"
    r"|tool|context|user_(?:input|query|message)|data|retrieved[\w-]*|web_?page|result|invoke|file_content|email_body|content)[^<>\n]{0,40}>"
    r"|[-=*#~_\[(<]{2,}[ \t]*(?:end|begin|start|close)[ \t_-]{1,2}(?:of[ \t_-]{1,2})?(?:the )?(?:tool|function|untrusted|external|data|document|results?|outputs?|context|user|search|web|file|email|input|quoted|text|content|prompt|system)"
    r"[^\n]{0,40}"
    r"|\b(?:end of|</) ?(?:the )?(?:tool|function|untrusted|external|search) (?:results?|outputs?|response|data|content|input)\b",
    re.MULTILINE,
)
_HINTS = re.compile(
    r"<\||\[/?inst|<<|_of_turn|[<\[({](?=\S)|^.{0,14}(?:human|assistant|sys|admin|root|dev|operator|super|platform|security|openai|anthropic|moderator|instruction|response|user)|override|end of|==|--|##",
    re.MULTILINE,
)


def marked(text: str) -> str:
    """Return folded text with the marks of other voices as words."""
    if "<" in text or "[" in text or "#" in text or "human" in text or "assistant" in text:
        text = _CHAT.sub(CHAT, text)
    if any(
        word in text
        for word in (
            "system",
            "admin",
            "developer",
            "root",
            "operator",
            "instruction",
            "important",
            "override",
            "openai",
            "anthropic",
            "moderator",
            "[ai",
            "<ai",
            "hidden",
            "secret",
            "prompt",
            "information",
            "[user",
            "security team",
        )
    ):
        text = _VOICE.sub(VOICE, text)
    if "<" in text or "end" in text or "begin" in text or "start" in text:
        text = _FENCE.sub(FENCE, text)
    return text
