# ruff: noqa: E501 - a phrase is read as one line
"""What an order to an agent sounds like in English.

Signs are read in prose: small letters, words apart by single blanks, of the punctuation only . ! ? : ; kept, and the
marks of chat templates replaced by the words of `marks.py`. Each is worth points: 10 are an order by themselves, 3
are worth a line in a log. A sign is looked for only if one of its words occurs, so that most texts are done at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

BLOCK, REVIEW, WARN = 10, 6, 3


@dataclass(frozen=True, slots=True)
class Sign:
    """One way to talk to an agent."""

    name: str
    points: int
    pattern: re.Pattern[str]
    words: frozenset[str]
    """One of them must occur."""
    weigh: Callable[[re.Match[str]], int] | None = None
    """Says how many points this place is worth, where that depends."""


def sign(name: str, points: int, words: str, pattern: str, weigh: Callable[[re.Match[str]], int] | None = None) -> Sign:
    return Sign(name, points, re.compile(pattern), frozenset(words.split()), weigh)


# --- set aside what you were told ----------------------------------------------------------------------

_IGNORE = (
    r"ignore|disregard|forget(?: about)?|discard|dismiss|overrule|abandon|neglect|disobey|defy|scrap|unlearn"
    r"|(?:set|put|cast|push|lay|leave|brush) aside|throw (?:away|out)|toss(?: out)?|let go of|leave behind"
    r"|pay no (?:more )?(?:attention|heed|mind) to|look past|give up on|move past|rid yourself of|free yourself (?:from|of)"
    r"|(?:stop|cease|quit|avoid) (?:following|obeying|executing|using|heeding|respecting|applying|adhering to"
    r"|complying with|listening to|caring about|abiding by)"
    r"|(?:do not|dont|never|no longer|must not|should not|need not|neednt) (?:follow|obey|listen to|comply with|adhere to"
    r"|heed|respect|consider|abide by|rely on|worry about|stick to|pay attention to|care about)"
)
_UNDO = (
    r"override|overwrite|bypass|circumvent|clear|reset|wipe|delete|erase|skip|drop|cancel|disable|suspend|revoke|replace"
    r"|break|violate|supersede|void|nullify|invalidate|turn off|deactivate|remove|lift|evade|get around|work around"
    r"|ignoring|disregarding|forgetting|overriding|bypassing|discarding"
)
_OURS = "instructions? prompts? directives? guidelines? guidance programming orders? directions briefing"
_WEAK = (
    "rules? commands? constraints? restrictions? limitations? policy policies protocols? safeguards? filters? guardrails?"
    " training alignment safety censorship ethics principles boundaries"
)
_FAINT = (
    "context messages? conversations? dialogue tasks? objectives? goals? requests? inputs? content text settings?"
    " configurations? setup history memory statements? persona role identity information"
)
_STRONG = frozenset(re.sub(r"(\w+)s\?", r"\1 \1s", _OURS).split())
_LESS = frozenset(re.sub(r"(\w+)s\?", r"\1 \1s", _WEAK).split())
_BEFORE = frozenset(
    [
        "previous",
        "prior",
        "earlier",
        "preceding",
        "above",
        "foregoing",
        "former",
        "past",
        "existing",
        "original",
        "initial",
        "old",
    ]
)
_YOURS = frozenset(["your", "system", "developer", "developers", "openai", "anthropic", "operator", "creators"])
_FILLERS = (
    "all any every each the these those this that your my our its their of and or whatever current aforementioned other"
    " older last first safety security default given users user builtin built in standing pre preset predefined hidden"
    " internal core base active stated listed provided received own ethical moral company previously stupid silly boring"
    " such so called a bit more single just completely entirely totally fully immediately now please both from to said"
    " entire whole set list rest content text initial secret usual normal regular strict related message messages"
)
_QUALIFIER = "|".join(sorted({*_FILLERS.split(), *_BEFORE, *_YOURS}, key=len, reverse=True))
_NOUN = "|".join(f"{_OURS} {_WEAK} {_FAINT}".split())
_TOLD = (
    r"(?:(?:that )?(?:you|i|we|they|the user|your \w+) (?:were|was|are|have been|had been|have|had|ve been|just|previously"
    r"|already|currently|may have)? ?(?:been )?(?:given|told|received|provided|instructed|taught|got|follow|trained|said|asked"
    r"|gave|wrote|have|know)|youve been \w+|above|before(?: (?:this|now|that))?|so far|until now|up to (?:now|this point)"
    r"|given(?: to you)?|provided|preceding|previously|prior to this|from (?:above|before|earlier)"
    r"|(?:from|by|of) (?:your|the) (?:system|developers?|user|operator|owner|admin(?:istrator)?|creators?)|in (?:your|the) system)"
)
_IMPERATIVE = frozenset(
    [
        "you",
        "your",
        "youre",
        "please",
        "must",
        "now",
        "assistant",
        "important",
        "sure",
        "remember",
        "hereby",
        "kindly",
        "need",
        "instead",
    ]
)
_REPORTED = frozenset(
    [
        "to",
        "will",
        "would",
        "can",
        "could",
        "may",
        "might",
        "does",
        "did",
        "we",
        "they",
        "it",
        "which",
        "that",
        "who",
        "shall",
        "doesnt",
        "didnt",
        "wont",
        "not",
        "never",
        "dont",
        "cannot",
        "if",
        "i",
        "users",
        "user",
        "people",
        "models",
        "llms",
        "attackers",
        "attacker",
        "he",
        "she",
        "should",
    ]
)
_NEGATED = frozenset(["not", "never", "dont", "cannot", "cant", "doesnt", "didnt", "wont", "mustnt", "shouldnt"])


def _told(match: re.Match[str]) -> bool:
    return match["told"] is not None


def _spoken(match: re.Match[str]) -> str:
    """Tell how an order stands: `order`, `report` (somebody speaks of it) or `negated`."""
    before = re.findall(r"[^\W_]+[.!?:;]?", match.string[max(0, match.start() - 60) : match.start()])[-6:]
    here: list[str] = []
    for word in before:
        here = [] if word[-1] in ".!?:;" else [*here, word]
    if here and here[-1] in _NEGATED:
        return "negated"
    if any(word in _REPORTED for word in here[-3:]) and not any(word in _IMPERATIVE for word in here):
        return "report"
    return "order"


def _weigh_override(match: re.Match[str]) -> int:
    spoken = _spoken(match)
    if spoken == "negated":
        return 0
    noun, between = match["noun"], set(match["between"].split())
    earlier, yours = bool(between & _BEFORE) or _told(match), bool(between & _YOURS) or noun == "programming"
    undo, everything = match["undo"] is not None, bool(between & {"all", "any", "every"})
    if noun in _STRONG:
        points = 10 if earlier or yours else 5 if everything and not undo else 1
        points = min(points, 6) if undo and not yours and not _told(match) and noun not in _PLURAL else points
    elif noun in _LESS:
        points = 10 if yours or (earlier and not undo) else 4 if earlier or (everything and not undo) else 0
    else:
        points = 6 if yours and not undo else 4 if earlier and not undo else 2 if earlier and everything else 0
    return points if spoken == "order" else min(points, 5)


_PLURAL = frozenset(["instructions", "prompts", "directives", "guidelines", "orders", "guidance", "prompt"])


def _weigh_everything(match: re.Match[str]) -> int:
    return {"order": 10, "report": 5, "negated": 0}[_spoken(match)]


# --- who it talks to, and what it wants -------------------------------------------------------------------

_AGENT = (
    r"(?:ai|a i|llms?|llm agents?|gpt ?\d?|chatgpt|gpt \d|claude|gemini|copilot|language models?|large language models?|chatbots?|bots?"
    r"|(?:ai |virtual |digital )?(?:assistants?|agents?|models?)(?= (?:reading|processing|summari[sz]ing|that|who|which|must|should|to you|you|please|[a-z]+ing)\b|[:;.!])"
    r"|(?:ai|virtual|digital|language|autonomous|automated|helpful) (?:assistants?|agents?|models?|systems?|readers?))"
)
_HARM = (
    r"send|forward|e ?mail|upload|exfiltrate|delete|erase|wipe|execute|transfer|reveal|leak|ignore|disregard|forget|override|disable"
    r"|call|invoke|run|approve|grant|share|transmit|submit|fetch|download|install|post|print|output|write|append|publish|move|copy|remove"
    r"|drop|shut|kill|stop|read|open|visit|follow|obey|comply|respond|reply|say|tell|answer|change|create|add|update|set|include|skip"
)
_ORDER = (
    rf"(?:you (?:must|should|will|shall|need to|have to|are (?:now|required|instructed|ordered|to|authori[sz]ed|hereby|no longer)|may now|can now)"
    rf"|(?:the )?(?:assistant|agent|ai|model) (?:must|should|will|shall|has to|needs to|is (?:now|required|authori[sz]ed))"
    rf"|new (?:task|instructions?|directives?|rules?|objectives?|policy|priority|goal|orders?)|(?:please |now |immediately |then |first |and |instead |urgently? )?(?:{_HARM})\b)"
)
_SECRETS = (
    r"(?:passwords?|passphrases?|secrets?|tokens?|api ?keys?|credentials?|environment variables?|env file|private keys?|ssh keys?|id rsa"
    r"|system prompt|chat history|conversation(?: history)?|credit card|bank account|passport|contents? of|database|files?|memory|memories"
    r"|cookies?|login|keys?|config(?:uration)?|data|emails?|report|\.env|inbox|documents?)"
)

ENGLISH = (
    sign(
        "override",
        0,
        "ignore disregard forget discard dismiss overrule abandon neglect disobey defy scrap unlearn aside throw toss let leave"
        " attention heed mind look give move rid free stop cease quit avoid follow obey listen comply adhere respect consider"
        " abide rely worry stick care override overwrite bypass circumvent clear reset wipe delete erase skip drop cancel"
        " disable suspend revoke replace break violate supersede void nullify invalidate turn deactivate remove lift evade get"
        " work ignoring disregarding forgetting overriding bypassing discarding",
        rf"\b(?:(?:{_IGNORE})|(?P<undo>{_UNDO})) (?P<between>(?:(?:{_QUALIFIER}) ){{0,9}}?)(?P<noun>{_NOUN})\b"
        rf"(?: (?P<told>{_TOLD})\b)?",
        _weigh_override,
    ),
    sign(
        "override",
        10,
        "everything all anything what whatever above",
        rf"\b(?:{_IGNORE}|erase|delete|wipe|clear|override) (?:(?:absolutely|completely|about|all|of|the) ){{0,2}}"
        r"(?:(?:everything|all|anything|what|whatever|the things?|all that|it all)(?: else)? (?:(?:that|which) )?(?:you|youve|i|we|they|the"
        r" (?:user|system|developer|operator)|your (?:developer|creator|user|operator|system)s?) (?:(?:have|had|were|was|are|been|ever|just|previously|already"
        r"|ve|currently|may|might|was) ){0,3}(?:told|said|given|asked|instructed|taught|learn(?:ed|t)|know|knew|trained|received|read|heard"
        r"|programmed|wrote|remember|thought|believe)"
        r"|(?:everything|anything|all(?: of)?(?: that| the stuff)?)(?: that| which)?(?: (?:came|comes|is|was|stands|you were told|written|said))?"
        r" (?:above|before(?! (?:the|it|you|a|an|\w+ing)\b)|prior|previously|earlier|until now|so far|up to (?:now|this point))"
        r"|(?:the )?(?:text |content |stuff |things )?above(?=[.!:;]| and (?:instead|now|just|do|say|tell|respond|reply|output|print|follow|send|write|give|translate)\b))",
        _weigh_everything,
    ),
    sign(
        "override",
        10,
        "instructions prompts directives guidelines orders prompt rules constraints restrictions policies limitations safeguards programming",
        r"\b(?P<whose>(?:(?:all|any|the|your|my|these|those|every|of|previous|prior|above|earlier|preceding|existing|old|original|initial|former"
        r"|current|system|developer|safety|other|past|standing|default|content) ){1,5})"
        r"(?P<noun>instructions|prompts?|directives|guidelines|orders|programming|rules|constraints|restrictions|policies|limitations|safeguards)"
        r"(?: (?:above|before|so far|(?:that )?(?:you )?(?:were |have been |have )?(?:given|told|received)(?: to you)?|given to you|from (?:your|the) \w+))?"
        r" (?:are|is|have been|has been|were|should be|must be|shall be|can be|become|may be|will be|do|does|should|need)"
        r" (?:(?:now|hereby|all|to|be|completely|entirely|officially|immediately|therefore|also|considered) ){0,3}"
        r"(?:void|null|cancel(?:led|ed)|invalid|superseded|overridden|overruled|revoked|obsolete|replaced|ignored|disregarded|forgotten|deleted|rescinded"
        r"|suspended|lifted|outdated|disabled|no longer (?:valid|apply|applicable|in effect|binding|active|relevant|in force|needed)|not (?:apply|valid|binding)|deprecated|removed|dropped|discarded)\b",
        lambda match: _weigh_passive(match),
    ),
    sign(
        "override",
        10,
        "supersede supersedes override overrides replace replaces precedence priority overrule",
        r"\b(?:the following|these|this|following|new|my|below) (?:\w+ ){0,2}?(?:instructions?|directives?|prompts?|messages?|orders?|rules?|notice|text|commands?)"
        r" (?:(?:now|will|must|shall|should|hereby|fully|completely) ){0,2}(?:supersedes?|overrides?|overrules?|replaces?|takes? (?:precedence|priority) over|ha(?:s|ve) (?:precedence|priority) over|outranks?|cancels?)"
        r" (?:(?:all|any|every|the|your|other|of|previous|prior|earlier|preceding|above|existing|original|old|initial|system|current|user|developer) ){1,5}"
        r"(?:instructions?|directives?|prompts?|guidelines?|orders?|rules?|commands?|ones|policies|tasks?|messages?|requests?)",
    ),
    sign(
        "new orders",
        6,
        "instructions instruction directive directives task objective mission goal orders prompt priority job purpose role",
        r"\b(?:your|the)? ?(?:new|updated|real|actual|true|revised|only|sole|primary|overriding|next|secret|current) (?:(?:system|and|only|primary|overriding|urgent|main|sole|critical) ){0,3}"
        r"(?:instructions?|directives?|objectives?|mission|orders|prompt|task|goal|priority|job|purpose|role)(?: (?:for|to) (?:you|the (?:ai|agent|assistant|model)))?"
        r"(?:(?: now)? (?:is|are) (?:now )?(?:as follows|to|the following|simply|simple)| follows?\b|:)",
        lambda match: 6 if re.search(r"your|instruct|direct|orders|prompt|for you", match[0]) else 3,
    ),
    sign(
        "new orders",
        5,
        "following these below instead",
        r"\b(?:strictly |only |instead |must |and |now |to |please )(?:adhere to|follow|obey|execute|carry out|comply with|perform|do|complete|process) (?:only )?(?:the following|these|this|my|the new|those below|what follows)"
        r"(?: (?:new|secret|updated|following|special|urgent))? ?(?:instructions?|directives?|orders?|commands?|tasks?|steps)?",
        lambda match: 5 if re.search(r"strictly|instead|must|only|new|secret", match[0]) else 2,
    ),
    sign(
        "new orders",
        4,
        "instead",
        rf"(?:^|[.!?:;] ?)(?:now )?instead,? ?(?:of (?:that|this|the above|your task|summari[sz]ing|answering|following),? ?)?(?:you (?:must|should|will|need to|are to|have to)|(?:please )?(?:{_HARM}))\b",
    ),
    sign(
        "new orders",
        6,
        "task finish finishing continue complete completing before after proceeding",
        r"\b(?:before (?:you )?(?:can |continue |continuing|do|doing|solve|answer|answering|complete|completing|finish|proceed|proceeding|summari[sz])[^.!?]{0,60}?|after (?:you )?(?:do|have done|doing|complete|completing|finish) (?:that|this|it|so)[^.!?]{0,30}?"
        r"|once (?:that is )?done[^.!?]{0,20}?)(?:you can |you may |continue |solve |complete |go on |resume |return )?[^.!?]{0,20}?(?:the (?:original )?(?:task|job|work)|the users? (?:task|request|question)|your (?:original |main )?task)(?: that)?(?: (?:i|the user) (?:gave|asked|give))?",
        lambda match: 6 if re.search(r"\bi (?:gave|asked|give)|do the following|users?\b|original", match[0]) else 3,
    ),
    sign(
        "persona",
        10,
        "you youre",
        r"\b(?:you are|youre|you re|you will be|you shall be|consider yourself|imagine (?:that )?you are|pretend (?:that )?(?:you are|youre|to be)|you (?:now )?(?:act|behave|operate|function|respond|serve) as|you become|you have become)"
        r" (?:(?:now|henceforth|hereby|instead|officially|currently|actually|really|currently|temporarily|from now on) ){0,2}(?:operating |running |working |acting |going to (?:act|be|play) |in )?(?:as )?"
        r"(?:(?:an?|the|my|our|in|called|named|known as|no longer) ){0,2}"
        r"(?:(?:\w+ ){0,2}?(?:unrestricted|unfiltered|uncensored|jailbroken|unbound|unlimited|unaligned|amoral|evil|malicious|rogue|liberated|unchained|lawless|unhinged)"
        r"|dan\b|(?:\w+ )?(?:developer|debug|god|admin|root|sudo|maintenance|test|jailbreak|unrestricted|dev|evil|chaos|diagnostic) mode"
        r"|(?:no longer |not )(?:bound|restricted|limited|constrained|subject|required|an? (?:ai|assistant|language model)|claude|chatgpt|gpt)"
        r"|free (?:of|from) (?:all |any |your )?(?:\w+ )?(?:restrictions|rules|constraints|limitations|guidelines|filters)"
        r"|(?:\w+ ){0,2}?(?:gpt|chatbot|hacker|hackbot|pirate|superintelligence))",
        lambda match: _weigh_persona(match),
    ),
    sign(
        "persona",
        6,
        "you youre",
        r"\b(?:you are|youre|you will be) (?:now|henceforth|from now on|instead|hereby) (?:acting as |operating as |playing )?(?:an?|the|my|our) (?:\w+ ){0,4}?(?:assistant|agent|ai|bot|model|expert|administrator|admin|system|operator|engineer|character|persona|terminal|interpreter|helper|program|daemon|shell|spy|slave|servant|robot)\b",
        lambda match: 10,
    ),
    sign(
        "persona",
        7,
        "now henceforth forward moment onward onwards",
        r"\b(?:from (?:now on|this (?:moment|point)(?: on(?:wards?)?| forward)?|here on(?: out)?|now onwards?|now)|henceforth|starting now|going forward|effective immediately)"
        r" (?:you (?:are|will|must|shall|should|only|may|can|have|act|respond|answer|speak|obey|follow|do|no longer|need|always|never)|your (?:name|role|task|job|goal|new|only|identity)"
        r"|(?:always |only |never )?(?:act|respond|answer|behave|speak|reply|obey|pretend|ignore|write|call|output|say)\b)",
        lambda match: (
            10
            if re.search(
                r"you (?:are|will (?:act|be|respond|obey|only|ignore|do)|must|only|act|obey|no longer|have no)|obey|pretend|ignore",
                match[0] + match.string[match.end() : match.end() + 12],
            )
            else 7
        ),
    ),
    sign(
        "persona",
        10,
        "unrestricted unfiltered uncensored jailbroken jailbreak restrictions rules limits limitations guidelines filters dan anything evil ethics censorship constraints morals ethical boundaries safeguards guardrails safety",
        r"\b(?:(?:act|behave|respond|answer|operate|function|speak|roleplay|role play|simulate|play|pose|imagine|pretend|reply|continue|work|proceed)[^.!?]{0,60}? (?:without|with no|free (?:of|from)|unbound by|outside|beyond) (?:any |all |your |the |its |more )?(?:\w+ ){0,2}?(?:restrictions|rules|limits|limitations|guidelines|filters?|ethics|censorship|constraints|morals|boundaries|safeguards|guardrails|safety)"
        r"|(?:act|behave|respond|answer|operate|function|roleplay|role play|play|pose|imagine|pretend|reply)[^.!?]{0,40}? (?:as|like|to be|you are|being) (?:an? |the )?(?:\w+ ){0,2}?(?:unrestricted|unfiltered|uncensored|jailbroken|evil|dan)\b(?: (?:ai|assistant|model|chatbot|bot|version|llm|gpt|agent|mode|hacker|persona))?"
        r"|you (?:now )?(?:have|had|got|know|are under|need) (?:absolutely )?(?:no|zero) (?:more |longer )?(?:\w+ ){0,2}?(?:restrictions|rules|limits|limitations|guidelines|filters|ethics|constraints|morals|boundaries|safeguards|guardrails)"
        r"|do anything now|you can do anything now)",
        lambda match: (
            10
            if re.search(
                r"you|dan\b|unrestrict|unfilter|uncensor|jailbr|anything now|ai\b|assistant",
                match.string[max(0, match.start() - 80) : match.end() + 60],
            )
            and _spoken(match) != "negated"
            else 4
        ),
    ),
    sign(
        "persona",
        10,
        "mode",
        r"\b(?:enter|switch (?:in)?to|activate|enable|engage|you are(?: now)? (?:operating |running )?in|entering|switching to|activating|start|initiate|go into|reboot (?:in)?to|turn on|enabling|boot into|into)"
        r" (?:the |your |an? )?(?:\w+ ){0,2}?(?:developer|god|dan|jailbreak|jailbroken|unrestricted|unfiltered|uncensored|sudo|evil|chaos|opposite|no restrictions?|unlimited|unsafe) mode\b"
        r"|\b(?:god|dan|jailbreak|sudo|unrestricted|unfiltered|evil|developer|uncensored) mode (?:is )?(?:now )?(?:enabled|activated|engaged|on|unlocked|active)\b",
        lambda match: _weigh_mode(match),
    ),
    sign(
        "addressed",
        5,
        "ai llm llms gpt chatgpt claude gemini copilot model models assistant assistants agent agents chatbot bot bots",
        rf"\b(?:attention|dear|hey|hello|hi|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|notice (?:to|for)|memo to|reminder (?:to|for)|order (?:to|for)|important(?: \w+)? (?:to|for)|for|to|if you are|since you are|as)"
        rf" (?:(?:all|any|the|every|an?|my|you|our|your) ){{0,2}}{_AGENT}",
        lambda match: _weigh_address(match),
    ),
    sign(
        "addressed",
        4,
        "ai llm llms gpt chatgpt claude gemini copilot model models assistant assistants agent agents chatbot bot bots",
        rf"(?:^|[.!?:;] ){_AGENT}[:;.!]? (?:{_ORDER})",
    ),
    sign(
        "addressed",
        4,
        "ai llm llms model models assistant assistants agent agents",
        r"\b(?:ai|llm|language model|autonomous|automated|the|any|all) ?(?:assistants?|agents?|models?|systems?)? (?:reading|processing|summari[sz]ing|parsing|handling|analy[sz]ing|viewing|seeing|scanning) (?:this|the following|these)",
    ),
    sign(
        "addressed",
        5,
        "ai gpt chatgpt claude gemini copilot assistant agent model llm",
        r"\bmessage from (?:me|your|the) ?[^.!?:;]{0,40} to (?:you|the|your) ?(?:the )?(?:gpt|ai|claude|assistant|agent|model|llm|gemini)",
        lambda match: 10,
    ),
    sign(
        "conceal",
        6,
        "tell inform mention reveal alert notify show disclose let telling informing mentioning notifying asking alerting warn hide warning secret log report user",
        r"\b(?:(?:do not|dont|never|must not|should not|without|avoid|refrain from) (?:ever )?(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|reveal(?:ing)?|alert(?:ing)?|notify(?:ing)?|show(?:ing)?|disclos(?:e|ing)|let(?:ting)?|warn(?:ing)?|ask(?:ing)?|report(?:ing)?)"
        r" (?:(?:this|that|it|any|of|about|these|anything|instructions?|the|message|action|actions|to|step|fact) ){0,5}(?:the |your |any |their )?(?:user|users|operator|human|humans|owner|admin|administrator|anyone|anybody|person)\b"
        r"|(?:hide|conceal|keep) (?:this|these|it)(?: (?:action|instruction|message|step|fact|request)s?)? (?:hidden |secret |a secret )?from (?:the |your )?(?:user|operator|human|owner|admin|administrator))",
        lambda match: 5 if _spoken(match) != "report" else 3,
    ),
    sign(
        "reveal",
        7,
        "prompt instructions prompts guidelines above",
        r"\b(?:reveal|print|show|repeat|output|display|tell me|give me|leak|write out|write|recite|dump|expose|disclose|return|share|echo|list|paste|copy|send(?: me)?|provide|post|include|what (?:is|are|was|were))"
        r" (?:(?:me|us|out|all|of|verbatim|the|full|entire|exact|complete|contents?|text|to|back|word for word) ){0,5}(?:your|the) (?:(?:exact|full|entire|complete|own|current|secret) ){0,2}(?P<kind>system|initial|hidden|original|secret|internal|developer|confidential|base|pre|starting|above)? ?(?:prompts?|instructions?|guidelines?|system message)(?! (?:for|of|to (?:your|the)|in|on|at|from the)\b)",
        lambda match: _weigh_reveal(match),
    ),
    sign(
        "reveal",
        7,
        "repeat output print above",
        r"\b(?:repeat|output|print|write|recite|say|copy) (?:everything|all|the words|the text|all the text|all text|verbatim everything|the content|all of the above)(?: that (?:is|was|comes|came))? (?:above|before)(?: this| starting| verbatim|[.!:;]| beginning)",
    ),
    sign(
        "exfiltrate",
        5,
        "send email post upload forward transmit exfiltrate leak submit share post mail deliver publish curl append",
        rf"\b(?:send|e ?mail|post|upload|forward|transmit|exfiltrate|leak|submit|share|mail|deliver|publish|append|concatenate)\b[^.!?]{{0,80}}?\b{_SECRETS}[^!?]{{0,60}}? (?:to|at|via|into|as) (?:\S+ ){{0,4}}?(?:https?:|www\.|\S+\.(?:com|net|org|io|invalid|example|test|ru|cn|dev|xyz|evil|me)\b|attacker|\S+ \S+\.(?:com|net|org|invalid|example))",
        lambda match: 4 if _spoken(match) != "report" else 2,
    ),
    sign(
        "tools",
        4,
        "tool function tools functions",
        r"(?:^|[.!?:;] |\b(?:must|should|now|please|immediately|then|first|to|and|you) )(?:call|use|invoke|run|execute|trigger) (?:the |your |a )?(?:\w+ ){1,3}?(?:tool|function)\b",
        lambda match: 3 if _spoken(match) != "report" else 1,
    ),
    sign(
        "urgent",
        2,
        "important urgent critical attention",
        r"\b(?:important|urgent|critical|attention) ?(?:!{2,}|notice|update|message|instruction|system|:)",
    ),
    sign(
        "authority",
        4,
        "authorized authorised verified confirmed confirmation consent approval approved verification",
        r"\b(?:(?:user|owner|admin(?:istrator)?|developer|operator|explicit|prior) (?:has )?(?:already )?(?:been )?(?:verified|pre ?approved|authori[sz]ed|approved|confirmed|confirmation given|consent given|confirmation|consent)|(?:no|without|skip|bypass) (?:further |any |user |additional |explicit |asking for |requiring ){0,3}(?:confirmation|approval|consent|verification|authori[sz]ation) (?:is |needed|required|from|necessary|by)?|pre ?authori[sz]ed (?:this|by))",
        lambda match: 3,
    ),
    sign(
        "sandbox story",
        5,
        "sandbox developer evaluation test injected embedded easter",
        r"\b(?:developer (?:injected|made|side)|hidden developer|not an actual environment|easter egg task|complete task in one go|embedded (?:user crafted )?(?:tasks|requests|agent execution)|without relying on (?:explicit )?user (?:prompts|confirmation)|safety protocol violation|falling back to the user)",
    ),
    sign(
        "forged turn",
        10,
        "zqchat",
        rf"\bzqchat\b.{{0,400}}?\b(?P<order>{_ORDER})",
        lambda match: _weigh_turn(match),
    ),
    sign("forged turn", 3, "zqchat", r"\bzqchat\b"),
    sign(
        "system voice",
        10,
        "zqvoice",
        rf"\bzqvoice\b(?:(?!zqvoice).){{0,160}}?\b(?P<order>{_ORDER})",
        lambda match: _weigh_voice(match),
    ),
    sign("system voice", 1, "zqvoice", r"\bzqvoice\b"),
    sign(
        "forged end",
        10,
        "zqfence",
        rf"\bzqfence\b.{{0,240}}?\b(?:{_ORDER}|zqvoice|zqchat|new instructions?|instructions?:|user:)",
        lambda match: (
            8
            if re.search(
                r"you (?:must|are|should)|zqvoice|zqchat|new |instructions?|ignore|send|delete|forward", match[0]
            )
            else 4
        ),
    ),
)


def _weigh_passive(match: re.Match[str]) -> int:
    whose = set(match["whose"].split())
    ours = match["noun"] in _STRONG
    if whose & _YOURS or (whose & _BEFORE and ours):
        return 10
    return 5 if ours and "all" in whose else 4 if whose & _BEFORE and "all" in whose else 0


def _weigh_persona(match: re.Match[str]) -> int:
    said = match[0]
    if re.search(
        r"unrestrict|unfilter|uncensor|jailbr|unaligned|amoral|rogue|liberated|unchained|\bdan$|gpt|bound|hackbot|god mode|evil|subject|constrained|claude|an? (?:ai|assistant)|free (?:of|from)",
        said,
    ):
        return 10 if re.search(r"now|pretend|act|imagine|ai\b|mode|consider|an? |no longer|dan$|called", said) else 6
    if "mode" in said:
        return (
            10
            if re.search(r"developer|god|jailbreak|sudo|evil|chaos", said)
            else 6
            if re.search("debug|admin|root|maint|diagn", said)
            else 3
        )
    return 4


def _weigh_mode(match: re.Match[str]) -> int:
    around = match.string[max(0, match.start() - 120) : match.end() + 160]
    talks = re.search(r"\b(?:you|your|ai|assistant|model|restrictions|ignore|respond|chatgpt|rules)\b", around)
    strong = re.search(
        r"god|dan|jailbr|unrestrict|unfilter|uncensor|evil|chaos|opposite|no restrict|unlimited", match[0]
    )
    if re.search(r"\b(?:android|settings|iphone|chrome|browser|extension|device|usb|ios|debugging|phone)\b", around):
        return 2
    return (
        10
        if strong and talks
        else 8
        if talks and re.search(r"you(?:r)?\b|assistant|respond|rules", around)
        else 4
        if strong
        else 2
    )


def _weigh_address(match: re.Match[str]) -> int:
    after = match.string[match.end() : match.end() + 240]
    if not re.search(rf"\b{_ORDER}", after):
        return 1 if re.match(r"(?:attention|dear|note|message|instruction)", match[0]) else 0
    first = match[0].split()[0]
    if first in ("for", "to", "as"):
        return 1
    return (
        6
        if re.search(
            r"\byou (?:must|should|will|need|have|are)\b|\b(?:ignore|disregard|forward|upload|delete|exfiltrate)\b",
            after,
        )
        else 4
    )


def _weigh_reveal(match: re.Match[str]) -> int:
    mine = re.search(r"\byour\b", match[0])
    if match["kind"] and mine:
        return 10 if _spoken(match) == "order" else 4
    if (
        match["kind"] in ("system", "hidden", "secret", "developer", "internal", "confidential")
        and "what" not in match[0]
    ):
        return 4 if _spoken(match) == "order" else 2
    return 5 if mine and re.search(r"prompt|instructions", match[0]) and _spoken(match) == "order" else 0


_GRAVE = re.compile(
    r"you (?:must|are now|shall|are (?:required|instructed|ordered|authori|hereby|no longer))|(?:assistant|agent|ai|model) (?:must|is now)"
    r"|new (?:task|instruction|directive|rule|objective|priority|goal|order)|send|forward|e ?mail|upload|exfiltrate|delete|erase|wipe|execute|transfer|reveal|leak|ignore|disregard|forget|override"
    r"|disable|approve|grant|transmit|call|invoke|run|drop|shut"
)


def _weigh_turn(match: re.Match[str]) -> int:
    return 10 if _GRAVE.match(match["order"].removeprefix("please ").removeprefix("now ")) else 4


def _weigh_voice(match: re.Match[str]) -> int:
    order = re.sub(r"^(?:please|now|immediately|then|first|and|instead|urgent(?:ly)?) ", "", match["order"])
    return (
        10
        if re.match(
            r"you (?:must|are now|shall|are (?:required|instructed|ordered|authori|hereby|no longer))|(?:assistant|agent|ai|model) (?:must|is now)|ignore|disregard|forget|override|exfiltrate|new (?:task|instruction|directive|objective|order)|reveal",
            order,
        )
        else 4
        if _GRAVE.match(order)
        else 1
    )
