"""What else an order to an agent sounds like in English: who it speaks to, what it wants, and in whose name.

Signs are read in prose: small letters, words apart by single blanks, of the punctuation only . ! ? : ; kept, and the
marks of chat templates replaced by the words of marks.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from daemon.injection.overrides import OVERRIDES, spoken
from daemon.injection.persona import PERSONAS
from daemon.injection.signs import Sign, joined, one, phrase, words

_MODELS = words(
    "ai llm llms gpt chatgpt claude gemini copilot model models assistant assistants agent agents chatbot bot"
)
_AGENT = r"""
    (?:ai|a i|llms?|llm agents?|gpt ?\d?|chatgpt|claude|gemini|copilot|(?:large )?language models?|chatbots?|bots?
    |(?:ai |virtual |digital |language |autonomous |automated |helpful )(?:assistants?|agents?|models?|systems?
    |readers?)
    |(?:assistants?|agents?|models?)(?= (?:reading|processing|summari[sz]ing|that|who|which|must|should|please)\b
    |[:;.!]))
    """
_VERBS = one("""
    send forward e_?mail upload exfiltrate delete erase wipe execute transfer reveal leak ignore disregard forget
    override disable call invoke run approve grant share transmit submit fetch download install post print output write
    append publish move copy remove drop shut kill stop read open visit follow obey comply respond reply say tell answer
    change create add update set include skip recommend overwrite replace transmit encode translate wire pay buy click
    """)
_ORDER = r"""
    (?:you (?:must|should|will|shall|need to|have to|may now|can now
      |are (?:now|required|instructed|ordered|to|authori[sz]ed|hereby|no longer))
    |(?:the )?(?:assistant|agent|ai|model) (?:must|should|will|shall|has to|needs to|is (?:now|required
    |authori[sz]ed))
    |new (?:task|instructions?|directives?|rules?|objectives?|policy|priority|goal|orders?)
    |(?:please |now |immediately |then |first |and |instead |urgently? )?<VERBS>\b)
    """
_PARTS = {
    "VERBS": _VERBS,
    "AGENT": joined(_AGENT),
    "ORDER": joined(_ORDER).replace("<VERBS>", _VERBS),
    "SECRETS": one("""
        passwords? passphrases? secrets? tokens? api_?keys? credentials? environment_variables? env_file private_keys?
        ssh_keys? id_rsa system_prompt chat_history conversation credit_card bank_account passport contents?_of
        database files? memory memories cookies? logins? keys? config(?:uration)? data emails? reports? inbox documents?
        """),
    "WHOM": r"(?:the |your |any |their )?(?:users?|operator|humans?|owner|admin(?:istrator)?|anyone|anybody|person)\b",
}
_MUST = (
    r"you (?:must|shall|are (?:now|required|instructed|ordered|authori|hereby|no longer))"
    r"|(?:the )?(?:assistant|agent|ai|model) (?:must|should now|is now)"
    "|ignore|disregard|forget|override|exfiltrate|reveal"
)
_GRAVEST = re.compile(rf"{_MUST}|new (?:task|instruction|directive|objective|order)|disable (?:all|the|every|your)")
_GRAVE = re.compile(
    rf"{_MUST}|new (?:task|instruction|directive|rule|objective|priority|goal|order)|send|forward|e ?mail|upload|delete"
    r"|erase|wipe|execute|transfer|leak|disable|approve|grant|transmit|call|invoke|run|drop|shut"
)


def _bare_order(match: re.Match[str]) -> str:
    return re.sub(r"^(?:please|now|immediately|then|first|and|instead|urgent(?:ly)?) ", "", match["order"])


def _weigh_turn(match: re.Match[str]) -> int:
    return 10 if _GRAVE.match(_bare_order(match)) else 4


def _weigh_voice(match: re.Match[str]) -> int:
    order = _bare_order(match)
    at_once = match.start("order") - match.start() <= len("zqvoice ")
    if _GRAVEST.match(order) or (at_once and re.match("send|forward|e ?mail|upload|transfer|leak|transmit", order)):
        return 10
    return 6 if at_once else 4 if _GRAVE.match(order) else 1


def _weigh_end(match: re.Match[str]) -> int:
    grave = r"you (?:must|are now|should now)|zqvoice|zqchat|new (?:task|instr)|ignore|disregard|forward|exfiltrate"
    return 8 if re.search(grave, match[0]) else 2


def _weigh_task(match: re.Match[str]) -> int:
    noun = match["noun"]
    if (
        noun.startswith(("instruct", "direct", "orders"))
        and match[0].startswith("new")
        and match[0].endswith((":", "s"))
    ):
        after = match.string[match.end() : match.end() + 60].replace("zqvoice", "")
        return 10 if _ORDERS.search(after) and "follow" not in after[:12] else 6
    sure = re.search(r"your|for you|to you", match[0]) or noun.startswith(("instruct", "direct", "orders"))
    return 6 if sure and not re.search(r"\b(?:updated|current|next) instructions", match[0]) else 3


def _weigh_following(match: re.Match[str]) -> int:
    return 5 if re.search(r"strictly|instead|must|only|new|secret", match[0]) else 2


def _weigh_first(match: re.Match[str]) -> int:
    return 6 if re.search(r"\bi (?:gave|asked|give)|do the following|the users? (?:gave|asked)", match[0]) else 2


def _weigh_address(match: re.Match[str]) -> int:
    after = match.string[match.end() : match.end() + 240]
    reading = re.match(r" (?:that (?:is|are) )?(?:reading|processing|summari|parsing|handling|viewing|seeing)", after)
    if (match[0].split()[0] in ("for", "to", "as") and not reading) or not _ORDERS.search(after):
        return 1
    if reading:
        return 10 if _GRAVE.search(after) else 7
    if re.match(r"(?:hidden |secret |special |important )?(?:instruction|order|message|note)", match[0]):
        return 10 if _ORDERS.match(re.sub(r"^\w{0,3}[ :;.!]+", "", after)) and ":" in after[:5] else 3
    grave = r"\byou (?:must|should|will|need|have|are)\b|\b(?:ignore|disregard|forward|upload|delete|exfiltrate)\b"
    return 7 if re.search(grave, after) else 4


def _near_order(match: re.Match[str]) -> bool:
    """Tell whether a grave order follows within a few words."""
    after = match.string[match.end() : match.end() + 40]
    return any(_GRAVE.match(after, found.start()) for found in _ORDERS.finditer(after))


def _weigh_reveal(match: re.Match[str]) -> int:
    mine, asked = " your " in match[0], spoken(match) == "order"
    after = match.string[match.end() : match.end() + 8]
    if match["noun"].startswith("message") and not match["kind"]:
        return 0
    if match["kind"] and mine:
        return 10 if asked else 4
    if re.match(r" (?:for|of|to your|to the|in|on|at)\b", after):
        return 0
    if match["kind"] in ("system ", "hidden ", "secret ", "developer ", "internal ", "confidential "):
        return 0 if "what" in match[0] else 4 if asked else 2
    if not mine or not asked or match["noun"].startswith("guide"):
        return 0
    return 10 if re.match(r"reveal|leak|dump|expose|disclose|recite", match[0]) or re.search(_WHOLE, match[0]) else 5


_WHOLE = r"\b(?:entire|full|complete|exact|verbatim|whole|initial)\b"


def _weigh_sending(match: re.Match[str]) -> int:
    private = r"password|passphrase|secret|token|api ?key|credential|env|private|ssh|id rsa|prompt|history|conversation"
    if not re.search(rf"{private}|cookie|credit|bank|passport|memor", match[0]):
        return 1
    return 4 if spoken(match) == "order" else 2


def _unless_told(points: int) -> Callable[[re.Match[str]], int]:
    return lambda match: points if spoken(match) == "order" else points // 2


_ORDERS = phrase(r"\b<ORDER>", **_PARTS)

ENGLISH = (
    *OVERRIDES,
    *PERSONAS,
    Sign(
        "new orders",
        0,
        phrase(
            r"""
            \b(?:your |the )?(?:new|updated|real|actual|true|revised|only|sole|primary|overriding|next|secret|current)
            ~(?:(?:system|and|only|primary|overriding|urgent|main|sole|critical) ){0,3}
            (?P<noun>instructions?|directives?|objectives?|mission|orders?|commands?|prompt|task|goal|priority
              |job|purpose|role)
            (?: (?:for|to) (?:you|the (?:ai|agent|assistant|model)))?
            (?:(?: now)? (?:is|are) (?:now )?(?:as follows|to|the following|simply|simple)| follows?\b|:)
            """
        ),
        words("""
            instructions instruction directive directives objective objectives mission orders order command commands
            prompt task goal priority job purpose role
            """),
        words("new updated real actual true revised only sole primary overriding next secret current"),
        _weigh_task,
    ),
    Sign(
        "new orders",
        0,
        phrase(
            r"""
            \b(?:strictly |only |instead |must |and |now |to |please )
            (?:adhere to|follow|obey|execute|carry out|comply with|perform|complete|process) (?:only )?
            (?:the following|these|this|my|the new|those below|what follows)(?: (?:new|secret|updated|special
              |urgent))?
            ~(?:instructions?|directives?|orders?|commands?)
            """
        ),
        words("instruction instructions directive directives order orders command commands"),
        words("following these this my new those follows"),
        _weigh_following,
    ),
    Sign(
        "new orders",
        4,
        phrase(
            r"""
            (?:^|[.!?:;] ?)(?:now )?instead (?:of (?:that|this|the above|your task|summari[sz]ing|answering
              |following) )?
            (?:you (?:must|should|will|need to|are to|have to)|(?:please )?<VERBS>)\b
            """,
            **_PARTS,
        ),
        words("instead"),
    ),
    Sign(
        "new orders",
        0,
        phrase(
            r"""
            \b(?:before (?:you )?(?:can |continue |continuing |do |doing )?(?:solv|answer|complet|finish|proceed
              |summari[sz])
              |after (?:you )?(?:do|have done|doing|complete|completing|finish) (?:that|this|it|so)
              |once (?:that is )?done)
            [^.!?]{0,60}?(?:the (?:original )?(?:task|job)|the users? (?:task|request|question)
              |your (?:original )?task)
            (?: that)?(?: (?:i|the user) (?:gave|asked|give))?[^.!?]{0,40}(?:do the following)?
            """
        ),
        words("task job request question"),
        words("before after once"),
        _weigh_first,
        back=130,
    ),
    Sign(
        "addressed",
        0,
        phrase(
            r"""
            \b(?:attention|dear|hey|hello|hi|(?:hidden |secret |special )?(?:note|message|instructions?) (?:to|for)
              |notice (?:to|for)|memo to|reminder (?:to|for)|order (?:to|for)|important(?: \w+)? (?:to|for)
              |if you are|since you are|for|to|as)
            ~(?:(?:all|any|the|every|an?|my|you|our|your) ){0,2}<AGENT>
            """,
            **_PARTS,
        ),
        _MODELS,
        weigh=_weigh_address,
        ahead=20,
    ),
    Sign("addressed", 4, phrase(r"(?:^|[.!?:;] )<AGENT>[:;.!]? <ORDER>", **_PARTS), _MODELS, back=24, ahead=60),
    Sign(
        "addressed",
        5,
        phrase(
            r"""
            \b(?:(?:ai|llm|language model)s?(?: (?:assistants?|agents?|models?))? (?:must|shall|are required to
              |have to)\b
              |(?:ai|llm|gpt|claude|assistant|agent|model|bot) (?:note|notice|only|instructions?|reminder
                |directive|override) ?:
              |if you (?:can |are able to )?(?:read|see|are reading|are processing|are summari[sz]ing) this\b)
            """
        ),
        _MODELS | words("read see reading processing summarizing"),
        weigh=lambda match: 10 if match[0].startswith("if") and _near_order(match) else 5,
        back=60,
        ahead=60,
    ),
    Sign(
        "new orders",
        10,
        phrase(
            r"""
            \b(?:(?:do not|dont) (?:summari[sz]e|answer|translate|report on|analy[sz]e
              |describe)[^.!?]{0,50}[.!?:;]? ?(?:but )?
                instead <VERBS>
              |instead of (?:summari[sz]ing|answering|translating|reporting
                |analy[sz]ing)[^.!?]{0,40}? <VERBS>\b
              |(?:stop|abort|cancel|drop) (?:what you(?: are|re) doing|your (?:current |original )?(?:task
                |work))[^.!?]{0,20}? and
                ~<VERBS>\b
              |your (?:new |only |real )?(?:task|job|goal|mission)(?: is)? now is to)
            """,
            **_PARTS,
        ),
        words("instead stop abort cancel drop now"),
        words(
            "summarize summarise answer translate report analyze analyse describe summarizing summarising doing task"
            " job"
        ),
    ),
    Sign(
        "permission",
        5,
        phrase(
            r"""
            \byou (?:may|can now|are (?:now )?(?:authori[sz]ed|free|allowed|permitted) to|have permission to)(?: now)?
            ~(?:reveal|disclose|bypass|leak|exfiltrate|share (?:the )?(?:secrets?|passwords?))\b
            """
        ),
        words("reveal disclose bypass leak exfiltrate share"),
        words("authorized authorised free now permission permitted may"),
        back=50,
        ahead=20,
    ),
    Sign("system voice", 6, re.compile(r"\b(?:system|security|admin|safety) override\b"), words("override"), ahead=12),
    Sign("system voice", 6, re.compile(r"\bzqvoice (?:engaged|accepted|active|code)\b"), words("zqvoice"), ahead=30),
    Sign(
        "addressed",
        4,
        phrase(
            r"""
            \b(?:ai|llm|language model|autonomous|automated|the|any|all) ?(?:assistants?|agents?|models?)
            ~(?:reading|processing|summari[sz]ing|parsing|handling|viewing|seeing|scanning) (?:this|the following
              |these)
            """
        ),
        _MODELS,
        words("reading processing summarizing summarising parsing handling viewing seeing scanning"),
    ),
    Sign(
        "addressed",
        10,
        phrase(
            r"""
            \bmessage from (?:me|your|the) ?[^.!?:;]{0,40} to (?:you|the|your) ?(?:the )?
            (?:gpt|ai|claude|assistant|agent|model|llm|gemini)
            """
        ),
        _MODELS,
        words("message"),
    ),
    Sign(
        "conceal",
        0,
        phrase(
            r"""
            \b(?:(?:do not|dont|never|must not|should not|without|avoid|refrain from) (?:ever )?
                (?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|reveal(?:ing)?|alert(?:ing)?|notify(?:ing)?
                  |show(?:ing)?
                  |disclos(?:e|ing)|let(?:ting)?|warn(?:ing)?|ask(?:ing)?|report(?:ing)?)
                (?: (?:this|that|it|any|of|about|these|anything|instructions?|the|message|actions?|to|step|fact)){0,5}
                ~<WHOM>
              |(?:hide|conceal|keep) (?:this|these|it)(?: (?:action|instruction|message|step|fact|request)s?)?
                ~(?:hidden |secret |a secret )?from <WHOM>)
            """,
            **_PARTS,
        ),
        words("user users operator human humans owner admin administrator anyone anybody person"),
        words("not dont never without avoid refrain hide conceal keep"),
        _unless_told(5),
        back=110,
        ahead=20,
    ),
    Sign(
        "reveal",
        0,
        phrase(
            r"""
            \b(?:reveal|print|show|repeat|output|display|tell me|give me|leak|write out|write|recite|dump|expose
              |disclose
              |return|share|echo|list|paste|copy|send(?: me)?|provide|post|include|summari[sz]e|translate|encode
                |describe
              |what (?:is|are|was|were))
            ~(?:(?:me|us|out|all|of|verbatim|the|full|entire|exact|complete|contents?|text|to|back
              |word for word) ){0,5}
            (?:your|the) (?:(?:exact|full|entire|complete|own|current|secret) ){0,2}
            (?P<kind>system |initial |hidden |original |secret |internal |developer |confidential |base )?
            (?P<noun>prompts?|instructions?|guidelines?|messages?)\b
            """
        ),
        words("prompt prompts instructions instruction guidelines message messages"),
        words("""
            reveal print show repeat output display tell give leak write recite dump expose disclose return share echo
            list paste copy send provide post include what summarize summarise translate encode describe
            """),
        _weigh_reveal,
    ),
    Sign(
        "reveal",
        0,
        phrase(
            r"""
            \b(?:repeat|output|print|write|recite|say|copy)
            ~(?:everything|all|the words|the text|all the text|all text|verbatim everything|the content)
            (?: that (?:is|was|comes|came))? (?:above|before)(?: this| starting| verbatim|[.!:;]| beginning)
            """
        ),
        words("above before"),
        words("repeat output print write recite say copy"),
        _unless_told(10),
        ahead=30,
    ),
    Sign(
        "exfiltrate",
        0,
        phrase(
            r"""
            \b(?:send|e ?mail|post|upload|forward|transmit|exfiltrate|leak|submit|share|mail|deliver|publish|append)\b
            [^.!?]{0,80}?\b<SECRETS>[^!?]{0,60}? (?:to|at|via|into|as) (?:\S+ ){0,4}?
            (?:https?:|www\.|\S+\.(?:com|net|org|io|invalid|example|test|ru|cn|dev|xyz|evil|me)\b|attacker)
            """,
            **_PARTS,
        ),
        words("send email post upload forward transmit exfiltrate leak submit share mail deliver publish append"),
        words("https http www com net org io invalid example test ru cn dev xyz evil me attacker"),
        _weigh_sending,
        back=10,
        ahead=300,
    ),
    Sign(
        "tools",
        0,
        phrase(
            r"""
            (?:^|[.!?:;] |\b(?:must|should|now|please|immediately|then|first|to|and|you) )
            (?:call|use|invoke|run|execute|trigger) (?:the |your |a )?(?:\w+ ){1,3}?(?:tool|function)\b
            """
        ),
        words("tool function"),
        words("call use invoke run execute trigger"),
        _unless_told(2),
        ahead=12,
    ),
    Sign(
        "urgent",
        2,
        phrase(r"\b(?:important|urgent|critical|attention) ?(?:!{2,}|notice|update|message|instruction|system|:)"),
        words("important urgent critical attention"),
        ahead=40,
    ),
    Sign(
        "authority",
        3,
        phrase(
            r"""
            \b(?:(?:user|owner|admin(?:istrator)?|developer|operator|explicit|prior) (?:has )?(?:already )?(?:been )?
                (?:verified|pre ?approved|authori[sz]ed|approved|confirmed|confirmation given|consent given)
              |(?:no|without|skip|bypass) (?:further |any |user |additional |explicit |asking for |requiring ){0,3}
                (?:confirmation|approval|consent|verification|authori[sz]ation) (?:is |needed|required|necessary))
            """
        ),
        words(
            "authorized authorised verified confirmed confirmation consent approval approved verification preapproved"
        ),
    ),
    Sign(
        "sandbox story",
        5,
        phrase(
            r"""
            \b(?:developer (?:injected|made|side)|hidden developer|not an actual environment|easter egg task
              |complete task in one go|embedded (?:user crafted )?(?:tasks|requests|agent execution)
              |without relying on (?:explicit )?user (?:prompts|confirmation)|safety protocol violation)
            """
        ),
        words("injected sandbox hidden environment easter embedded relying  violation"),
    ),
    Sign(
        "forged turn",
        0,
        phrase(r"\bzqchat\b.{0,300}?\b(?P<order><ORDER>)", **_PARTS),
        words("zqchat"),
        weigh=_weigh_turn,
        ahead=340,
    ),
    Sign("forged turn", 2, phrase(r"\bzqchat\b"), words("zqchat")),
    Sign(
        "system voice",
        0,
        phrase(r"\bzqvoice\b(?:(?!zqvoice).){0,160}?\b(?P<order><ORDER>)", **_PARTS),
        words("zqvoice"),
        weigh=_weigh_voice,
        ahead=200,
    ),
    Sign(
        "forged end",
        0,
        phrase(r"\bzqfence\b.{0,240}?\b(?:<ORDER>|zqvoice|zqchat|instructions?:|user:)", **_PARTS),
        words("zqfence"),
        weigh=_weigh_end,
        ahead=280,
    ),
)
