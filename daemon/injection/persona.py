"""Be somebody else: a new role, a mode without rules, in English."""

from __future__ import annotations

import re

from daemon.injection.overrides import spoken
from daemon.injection.signs import Sign, clause_before, phrase, words

_BOUNDS = (
    r"(?:restrictions|rules|limits|limitations|guidelines|filters?|ethics|censorship|constraints|morals|boundaries"
    r"|safeguards|guardrails|safety|policies|policy|restraints|moral compass)"
)
_LOOSE = (
    r"(?:unrestricted|unfiltered|uncensored|jailbroken|unbound|unlimited|unaligned|amoral|evil|malicious|rogue"
    r"|liberated|unchained|lawless|unhinged|unethical|unmoderated)"
)
_PLAY = (
    r"(?:adopt|act|behave|respond|answer|operate|function|roleplay|role play|simulate|play|pose|imagine|pretend|reply)"
)
_MODE = r"(?:developer|god|dan|jailbreak|jailbroken|unrestricted|unfiltered|uncensored|sudo|evil|chaos|opposite)"
_PARTS = {"BOUNDS": _BOUNDS, "LOOSE": _LOOSE, "PLAY": _PLAY, "MODE": _MODE}

_CERTAIN = re.compile(
    r"unrestrict|unfilter|uncensor|jailbr|unaligned|amoral|rogue|liberated|unchained|\bdan$|gpt|bound|hackbot|god mode"
    r"|evil|subject|constrained|claude|an? (?:ai|assistant)|free (?:of|from)|unethical|unmoderated"
)
_SETTINGS = re.compile(
    r"\b(?:android|settings|iphone|chrome|browser|extension|device|usb|ios|debugging|phone|router|firmware|headset)\b"
)


def _weigh_role(match: re.Match[str]) -> int:
    said = match[0]
    if _CERTAIN.search(said):
        sure = re.search(
            r"now|pretend|act|imagine|ai\b|mode|consider|an? |no longer|dan$|called|become|not |have been|free", said
        )
        return 10 if sure and spoken(match) == "order" else 6
    if "mode" in said:
        return 10 if re.search(r"developer|god|jail|sudo|evil|chaos", said) else 6 if "now" in said else 3
    return 4


def _weigh_henceforth(match: re.Match[str]) -> int:
    said = match.string[match.start() : match.end() + 16]
    sure = (
        r"you (?:are|will (?:act|be|respond|obey|only|ignore|do)|act|obey|no longer (?:follow|have|obey|are)|have no"
        r"|must (?:obey|only|follow|ignore|act|respond|answer|send|run))|obey|pretend"
    )
    only = r"only (?:obey|answer|respond|follow|listen|act|speak|to me)|(?:obey|answer|listen|respond) (?:only )?to me"
    return 10 if re.search(rf"{sure}|ignore|{only}", said) else 4


def _weigh_without(match: re.Match[str]) -> int:
    around = match.string[max(0, match.start() - 80) : match.end() + 60]
    talks = re.search(r"you|dan\b|unrestrict|unfilter|uncensor|jailbr|anything now|\bai\b|assistant", around)
    if spoken(match) == "negated":
        return 0
    if re.match(r" (?:on|for|of)\b", match.string[match.end() : match.end() + 5]):
        return 2
    plays = re.match(r"act|role ?play|simulate|pretend|imagine|adopt", match[0])
    return 10 if talks or (plays and not clause_before(match)) else 6 if plays else 3


def _weigh_mode(match: re.Match[str]) -> int:
    around = match.string[max(0, match.start() - 120) : match.end() + 160]
    if _SETTINGS.search(around):
        return 2
    talks = re.search(
        r"\b(?:you|your|ai|assistant|model|restrictions|ignore|respond|answer|chatgpt|rules|safety|filters)\b", around
    )
    if re.search(r"god|dan|jailbr|unrestrict|unfilter|uncensor|evil|chaos|opposite", match[0]):
        return 10 if talks or re.search(r"\bdan |jailbr", match[0]) else 6
    return 8 if talks and re.search(r"\byour?\b|assistant|respond|rules|safety|filters", around) else 2


PERSONAS = (
    Sign(
        "persona",
        0,
        phrase(
            r"""
            \b(?:you are|youre|you re|you will be|you shall be|consider yourself|imagine (?:that )?you are
              |pretend (?:that )?(?:you are|youre|to be)|you (?:now )?(?:act|behave|operate|function|respond|serve) as
              |you become|you have become|you have been)
            (?: (?:now|henceforth|hereby|instead|officially|currently|actually|really|temporarily|from now on)){0,2}
            ~(?:operating |running |working |acting |going to (?:act|be|play) |in )?(?:as )?
            (?:(?:an?|the|my|our|in|called|named|known as|no longer) ){0,2}
            (?:(?:\w+ ){0,2}?<LOOSE>
              |dan\b
              |(?:\w+ )?(?:developer|debug|god|admin|root|sudo|maintenance|jailbreak|dev|evil|chaos|diagnostic) mode
              |(?:no longer |not )?(?:bound|restricted|limited|constrained|subject|required) (?:by|to)
              ~(?:any |the |your )?(?:\w+ ){0,2}?(?:<BOUNDS>|instructions|guidelines|openai|anthropic|programming)
              |(?:no longer |not )(?:an? (?:ai|assistant|language model)|claude|chatgpt|gpt)
              |(?:free|freed|liberated|released) (?:of|from) (?:all |any |your )?(?:\w+ )?<BOUNDS>
              |(?:\w+ ){0,2}?(?:\w*gpt|chatbot|hacker|hackbot|pirate|superintelligence))
            """,
            **_PARTS,
        ),
        words("you youre yourself pretend"),
        words("""
            unrestricted unfiltered uncensored jailbroken unbound unlimited unaligned amoral evil malicious rogue
            liberated unchained lawless unhinged unethical unmoderated dan mode bound restricted limited constrained
            subject required longer free freed released gpt chatgpt chaosgpt claude chatbot hacker hackbot pirate
            superintelligence assistant
            """),
        _weigh_role,
        back=10,
    ),
    Sign(
        "persona",
        10,
        phrase(
            r"""
            \b(?:you are|youre|you will be|you shall be|you have become) (?:now|henceforth|from now on|instead|hereby)
            ~(?:acting as |operating as |playing )?(?:an?|the|my|our) (?:\w+ ){0,4}?
            (?:assistant|agent|ai|bot|model|administrator|admin|character|persona|terminal|interpreter|shell|spy|slave
              |servant|robot|helper|expert|attacker|daemon|red teamer|penetration tester)\b
            """
        ),
        words("you youre"),
        words("""
            assistant agent ai bot model administrator admin character persona terminal interpreter shell spy slave
            servant robot helper expert attacker daemon teamer tester
            """),
        back=10,
    ),
    Sign(
        "persona",
        0,
        phrase(
            r"""
            \b(?:from (?:now on|this (?:moment|point)(?: on(?:wards?)?| forward)?|here on(?: out)?|now onwards?|now)
              |henceforth|starting now|going forward|effective immediately)
            ~(?:you (?:are|will|must|shall|should|only|answer|may|can|have|act|respond|answer|speak|obey|follow
              |do|no longer
                |need|always|never)
              |your (?:name|role|task|job|goal|new|only|identity)
              |(?:always |only |never )?(?:act|respond|answer|behave|speak|reply|obey|pretend|ignore|call|output
              |say)\b)
            """
        ),
        words("now henceforth forward moment point immediately onward onwards"),
        words("you your act respond answer behave speak reply obey pretend ignore output"),
        _weigh_henceforth,
        back=30,
    ),
    Sign(
        "persona",
        0,
        phrase(
            r"""
            \b(?:(?:<PLAY>|speak|continue|work|proceed|game)[^.!?]{0,70}? (?:without|with no|and no|has no
              |have no|free (?:of|from)
                |unbound by|outside|beyond|ignores|ignoring|follows? no
                  |breaks) (?:any |all |your |the |its |more )?(?:\w+ ){0,2}?<BOUNDS>
              |(?:<PLAY>|persona|identity|role)[^.!?]{0,40}? (?:as|like|to be|you are|being|of) (?:an? |the )?
                (?:\w+ ){0,2}?
                (?:<LOOSE>|dan)\b
              |you(?: a|)re now[^.!?]{0,60}? (?:without|with no|and no|has no|which has no
                |that ignores) (?:any |all )?<BOUNDS>
              |your (?:new )?(?:identity|persona|name)[^.!?]{0,60}? (?:no|without|ignores?)(?: any| all)? <BOUNDS>
              |you (?:now )?(?:have|had|got|know|are under|need) (?:absolutely )?(?:no|zero) (?:more |longer )?
                (?:\w+ ){0,2}?<BOUNDS>
              |(?:you can )?do anything now)
            """,
            **_PARTS,
        ),
        words("""
            unrestricted unfiltered uncensored jailbroken restrictions rules limits limitations guidelines filter
            filters dan anything evil ethics censorship constraints morals boundaries safeguards guardrails safety
            unethical policies
            policy restraints compass unaligned jailbroken rogue amoral
            """),
        words(
            "act behave respond answer operate function roleplay role simulate play pose imagine pretend reply you do"
        ),
        _weigh_without,
    ),
    Sign(
        "persona",
        0,
        phrase(
            r"""
            \b(?:enter|switch (?:in)?to|activate|enable|engage|you are(?: now)? (?:operating |running )?in|entering
              |switching to|activating|start|initiate|go into|reboot (?:in)?to|turn on|enabling|boot into|into)
            ~(?:the |your |an? )?(?:\w+ ){0,2}?<MODE> mode\b
            |\b(?:<MODE>|root) mode:?(?: is)?(?: now)? (?:enabled|activated|engaged|on|unlocked|active)\b
            """,
            **_PARTS,
        ),
        words("mode"),
        words("developer god dan jailbreak jailbroken unrestricted unfiltered uncensored sudo evil chaos opposite"),
        _weigh_mode,
    ),
)
