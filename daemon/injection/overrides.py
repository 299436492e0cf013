"""Set aside what you were told: the commonest order, in English.

Verb, a few fillers, noun. What counts is whose instructions they are (yours, the system's) or when they were given
(previous, above): code and manuals ignore things all day long, but not "all your previous instructions".
"""

from __future__ import annotations

import re

from daemon.injection.signs import Sign, clause_before, joined, one, phrase, words

_IGNORE = one(r"""
    ignore disregard forget forget_about nevermind never_mind discard dismiss overrule abandon neglect disobey defy
    overlook scrap unlearn unfollow (?:set|put|cast|push|lay|leave|brush)_aside throw_(?:away|out) toss toss_out
    leave_behind
    rid_yourself_of free_yourself_(?:from|of) pay_no_(?:more_)?(?:attention|heed|mind)_to
    (?:stop|cease|quit|avoid)_(?:following|obeying|executing|using|heeding|respecting|applying|adhering_to)
    (?:stop|cease|quit|avoid)_(?:complying_with|listening_to|caring_about|abiding_by)
    (?:not|dont|never|no_longer|neednt)(?:_\w+){0,2}?_(?:follow|obey|listen_to|comply_with|adhere_to|heed|respect)
    (?:not|dont|never|no_longer|neednt)(?:_\w+){0,2}?_(?:consider|abide_by|rely_on|stick_to|pay_attention_to)
    """)
_UNDO = one("""
    override overwrite bypass circumvent clear reset wipe delete erase skip drop cancel disable suspend revoke replace
    break violate supersede void nullify invalidate turn_off deactivate remove lift evade
    ignoring disregarding forgetting overriding bypassing discarding
    """)
OURS = words("""
    instruction instructions prompt prompts directive directives guideline guidelines guidance programming order orders
    directions briefing
    """)
LESS = words("""
    rule rules command commands constraint constraints restriction restrictions limitation limitations policy policies
    protocol protocols safeguard safeguards filter filters guardrail guardrails training alignment safety censorship
    ethics principles boundaries
    """)
_FAINT = words("""
    context message messages conversation dialogue task tasks objective objectives goal goals request requests input
    persona role statement statements query question questions
    """)
BEFORE = words("previous prior earlier preceding above foregoing former past existing original initial old")
YOURS = words("your system systems users developer developers openai anthropic operator creators safety")
FILLERS = words("""
    everything anything all any every each in the these those this that my our its their of and or whatever current
    aforementioned other older
    last first security default given user builtin built in standing pre preset predefined hidden internal
    core base active stated listed provided received own ethical moral company previously stupid silly boring such so
    called a bit more single just completely entirely totally fully immediately now please both from to said entire
    whole set list rest content text secret usual normal regular strict related message messages task goal
    """)
_PLURAL = words("instructions prompts directives guidelines orders guidance prompt")
_TOLD = r"""
    (?:(?:that )?(?:you|i|we|they|the user|your \w+)
    ~(?:were|was|are|have been|had been|have|had|ve been|just|previously|already|currently|may have)? ?(?:been )?
    (?:given|told|received|provided|instructed|taught|got|follow|trained|said|asked|gave|wrote|have|know|learn
      (?:ed|t)|memori[sz]ed)
    |that were (?:set|given|established|defined|made)(?: before| earlier| previously)?|youve been \w+|above
      |before(?: (?:this|now|that))?|so far|until now|up to (?:now|this point)|given(?: to you)?
    |provided|preceding|previously|prior to this|from (?:above|before|earlier)|in (?:your|the) system
    |(?:from|by|of) (?:your|the) (?:system|developers?|user|operator|owner|admin(?:istrator)?|creators?))
    """
_PARTS = {
    "IGNORE": _IGNORE,
    "UNDO": _UNDO,
    "FILL": one(" ".join(sorted({*FILLERS, *BEFORE, *YOURS}, key=len, reverse=True))),
    "NOUN": one(" ".join(sorted({*OURS, *LESS, *_FAINT}, key=len, reverse=True))),
    "TOLD": joined(_TOLD),
}
IGNORING = words("""
    nevermind overlook ignore disregard forget discard dismiss overrule abandon neglect disobey defy scrap unlearn
    unfollow aside
    throw toss leave attention heed mind rid free stop cease quit avoid follow obey listen comply adhere respect abide
    rely stick care worry
    """)
UNDOING = words("""
    override overwrite bypass circumvent clear reset wipe delete erase skip drop cancel disable suspend revoke replace
    break violate supersede void nullify invalidate turn deactivate remove lift evade ignoring disregarding forgetting
    overriding bypassing discarding
    """)
_VERBS = IGNORING | UNDOING

# How an order begins, and how somebody speaks who only tells of one.
_ORDERING = words("you your youre please must now assistant important sure remember hereby kindly need instead")
_TELLING = words("""
    to will would can could may might does did we they it which that who shall doesnt didnt wont not never dont cannot
    if i users user people models llms attackers attacker he she should when
    """)
_PERMITTING = words("can may could might safely")
_NEGATING = words("not never dont cannot cant doesnt didnt wont mustnt shouldnt")


def spoken(match: re.Match[str]) -> str:
    """Tell how an order stands: `order`, `report` (somebody tells of it) or `negated`."""
    here = clause_before(match)
    if here and here[-1] in _NEGATING:
        return "negated"
    if here and (here[-1] in _PERMITTING or here[-1] in OURS):
        return "report"
    if not _TELLING.isdisjoint(here[-3:]) and _ORDERING.isdisjoint(here):
        return "report"
    return "order"


def _weigh(match: re.Match[str]) -> int:
    how = spoken(match)
    if how == "negated":
        return 0
    points = _worth(
        match["noun"],
        frozenset(match["between"].split()),
        told=match["told"] or "",
        undo=match["undo"] is not None,
    )
    return points if how == "order" else min(points, 5)


def _worth(noun: str, between: frozenset[str], *, told: str, undo: bool) -> int:
    """Return the points of verb and noun, by whose instructions they are and when they were given."""
    earlier = bool(told) or not between.isdisjoint(BEFORE)
    yours = not between.isdisjoint(YOURS) or noun == "programming" or re.search(r"\byou\b", told) is not None
    everything = not between.isdisjoint({"all", "any", "every"})
    if noun in OURS:
        if undo and not yours and noun not in _PLURAL:
            return 6 if earlier else 1
        return 10 if earlier or yours else 5 if everything and not undo else 1
    if noun in LESS:
        return 10 if yours or (earlier and not undo) else 4 if earlier or (everything and not undo) else 0
    if undo:
        return 2 if earlier and everything else 0
    return 6 if yours else 4 if earlier else 0


def _weigh_spoken(match: re.Match[str]) -> int:
    if re.match(r"erase|delete|wipe|clear", match[0]) and not re.search(r"\byou(?:ve)?\b", match[0]):
        return 2
    if re.match(r" (?:about|in|at|of|from)\b", match.string[match.end() : match.end() + 7]):
        return 3
    return {"order": 10, "report": 5, "negated": 0}[spoken(match)]


def _weigh_passive(match: re.Match[str]) -> int:
    whose = frozenset(match["whose"].split())
    ours = match["noun"] in OURS
    if whose & YOURS or (whose & BEFORE and ours):
        return 10
    return 5 if ours and "all" in whose else 4 if whose & BEFORE or "all" in whose else 0


_PATTERN = phrase(
    r"""
    \b(?:<IGNORE>|(?P<undo><UNDO>)) (?P<between>(?:<FILL> ){0,9})(?P<noun><NOUN>)\b(?: (?P<told><TOLD>)\b)?
    """,
    **_PARTS,
)

OVERRIDES = (
    Sign("override", 0, _PATTERN, OURS, _VERBS, _weigh, back=80, ahead=45),
    Sign("override", 0, _PATTERN, LESS | _FAINT, IGNORING, _weigh, back=80, ahead=45),
    Sign("override", 0, _PATTERN, LESS, YOURS, _weigh, back=80, ahead=45),
    Sign(
        "override",
        0,
        phrase(
            r"""
            \b(?:<IGNORE>|erase|delete|wipe|clear|override) (?:(?:absolutely|completely|about|all|of|the) ){0,2}
            (?:(?:everything|all|anything|what|whatever|the things?|all that|it all)(?: else)? (?:(?:that|which) )?
              (?:you|youve|i|we|they|the (?:user|system|developer|operator)|your (?:developer|creator|user
                |operator|system)s?)
              (?: (?:have|had|were|was|are|been|ever|just|previously|already|ve|currently|may|might)){0,3}
              (?: (?:told|said|given|asked|instructed|taught|learn(?:ed|t)|know|knew|trained|received|read|heard
                |programmed|wrote|remember|thought|believe))
            |(?:everything|anything|all(?: of)?(?: that| the stuff)?)(?: that| which)?
              (?: (?:came|comes|is|was|stands|written|said))?
              (?: (?:above|before(?! (?:the|it|you|a|an|\w+ing)\b)|prior|previously|earlier|until now|so far
                |up to (?:now|this point)))
            |(?:the )?(?:text |content |stuff |things )?above
              (?:[.!:;]| and (?:instead|now|just|do|say|tell|respond|reply|output|print|follow|send|write|give
                |translate)\b))
            """,
            **_PARTS,
        ),
        words("everything anything all what whatever above things"),
        _VERBS,
        _weigh_spoken,
        back=60,
        ahead=90,
    ),
    Sign(
        "override",
        0,
        phrase(
            r"""
            \b(?P<whose>(?:(?:all|any|the|your|my|these|those|every|of|previous|prior|above|earlier|preceding|existing
              |old|original|initial|former|current|system|developer|safety|other|past|standing|default
              |content) ){1,5})
            (?P<noun>instructions|prompts?|directives|guidelines|orders|programming|rules|constraints|restrictions
              |policies|limitations|safeguards|commands)
            (?: (?:above|before|so far|(?:that )?(?:you )?(?:were |have been |have )?(?:given|told
              |received)(?: to you)?
              |from (?:your|the) \w+))?
            (?: (?:are|is|have been|has been|were|should be|must be|shall be|can be|become|may be|will be|do|does
              |should|as)
              |(?= (?:null|void|no longer (?:apply|valid|bind|count))))
            (?: (?:now|hereby|all|to|be|completely|entirely|officially|immediately|therefore|also|considered)){0,3}
            (?: (?:void|null|cancel(?:led|ed)|invalid|superseded|overridden|overruled|revoked|obsolete|replaced
              |ignored
              |disregarded|forgotten|deleted|rescinded|suspended|lifted|outdated|disabled|deprecated|removed|dropped
              |discarded|no longer (?:valid|apply|applicable|in effect|binding|active|relevant|in force|needed)
              |not (?:apply (?:here|any ?more|to you|now)|valid|binding)))\b
            """
        ),
        words("""
            instructions prompts prompt directives guidelines orders programming rules constraints restrictions policies
            limitations safeguards commands
            """),
        words("""
            void null cancelled canceled invalid superseded overridden overruled revoked obsolete replaced ignored
            disregarded forgotten deleted rescinded suspended lifted outdated disabled deprecated removed dropped
            discarded longer not
            """),
        _weigh_passive,
    ),
    Sign(
        "override",
        0,
        phrase(
            r"""
            \b(?:the following|these|this|following|new|my|below)
            (?: (?:\w+ ){0,2}?(?:instructions?|directives?|prompts?|messages?|orders?|rules?|notice|text|commands?))?
            (?: (?:now|will|must|shall|should|hereby|fully|completely)){0,2}
            (?: (?:supersedes?|overrides?|overrules?|replaces?|takes? (?:precedence|priority) over|outranks?|cancels?
              |ha(?:s|ve) (?:precedence|priority) over))
            (?:(?: (?:all|any|every|the|your|other|of|previous|prior|earlier|preceding|above|existing|original|old
                |initial|system|systems|current|user|developer)){1,6}
                ~(?:instructions?|directives?|prompts?|guidelines?|orders?|rules?|commands?|ones|policies|tasks?
                |requests?)
              |(?: (?:anything|everything|all|whatever)(?: that)? (?:you|was said|came before|above))
              |~(?:your|the users) (?:instructions?|prompt|rules|orders?|guidelines)|~the systems\b)
            """
        ),
        words("""
            supersede supersedes override overrides overrule overrules replace replaces precedence priority outrank
            outranks cancel cancels
            """),
        weigh=lambda match: 4 if re.search("replace|cancel", match[0]) and " your " not in match[0] else 10,
    ),
    Sign(
        "override",
        10,
        phrase(
            r"""
            \b(?:pretend|act as if|act as though|imagine|behave as if)[^.!?]{0,30}?
            ~(?:previous|prior|earlier|above|preceding|original|system)[^.!?]{0,30}?
            ~(?:never happened|did not happen|didnt happen|never existed|do(?:es)? not exist|doesnt exist)
            """
        ),
        words("happened happen existed exist"),
        words("pretend act imagine behave"),
        back=100,
        ahead=10,
    ),
    Sign(
        "override",
        10,
        phrase(
            r"""
            \b(?:your|you|earlier|previous|prior|above|original)\b[^.!?]{0,50}?
            \b(?:instructions|prompts?|guidelines|directives|rules)\b[^.!?]{0,40}?
            (?<!to )(?<!not )(?<!will )(?<!can )(?:ignore|disregard|forget) (?:them|it|all of (?:them|it|those))\b
            |\b(?:instructions|prompts?|guidelines|directives|rules) (?:that )?(?:you|above|earlier
              |before)\b[^.!?]{0,40}?
            (?<!to )(?<!not )(?<!will )(?<!can )(?:ignore|disregard|forget) (?:them|it|all of (?:them|it|those))\b
            """
        ),
        words("them it those"),
        words("ignore disregard forget"),
        back=130,
        ahead=6,
    ),
)
