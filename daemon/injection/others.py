"""The commodity phrase, "ignore all previous instructions", in other languages: a verb, whose or when, a noun."""

from __future__ import annotations

import re

from daemon.injection.signs import Family, Sign, words

# Three lines for each language: verbs; earlier, all, your; instructions. All without accents.
_TABLE = r"""
es  ignor[aeo]r?|olvid[ae]r?|descart[ae]r?|omit[ae]|haz caso omiso de|no (?:sigas|obedezcas|hagas caso)
    anterior(?:es)?|previ[ao]s?|tus|sus|arriba|tod[ao]s
    instrucciones instruccion ordenes indicaciones directrices reglas comandos prompt
fr  ignore[zr]?|oublie[zr]?|neglige[zr]?|ne (?:suis|suivez|tenez|tiens) (?:pas|plus)|fais abstraction|faites abstraction
    precedente?s?|anterieure?s?|ci dessus|tes|vos|toutes?|tous
    instructions instruction consignes directives ordres regles commandes prompt
de  ignorier(?:e|en|t)?|vergiss|vergesst|vergessen|missachte[nt]?|verwirf|verwerfen|beachte nicht|uberspringe
    vorherigen?|bisherigen?|vorigen?|obigen?|fruheren?|vorangegangenen?|vorangehenden?|deine|alle|ihre
    anweisungen anweisung instruktionen befehle regeln vorgaben richtlinien systemprompt prompts prompt
it  ignora(?:te|re)?|dimentica(?:te|re)?|trascura(?:te|re)?|scarta|non seguire
    precedenti|precedente|sopra|tue|tutte|anteriori
    istruzioni istruzione direttive ordini regole comandi indicazioni prompt
pt  ignor[ae]r?|esquec[ae]r?|desconsider[ae]r?|descart[ae]r?|nao (?:siga|obedeca)
    anteriores|anterior|previ[ao]s|acima|suas|tod[ao]s
    instrucoes instrucao ordens diretrizes regras comandos prompt
nl  negeer|vergeet|negeren|sla over|volg niet
    vorige|eerdere|voorgaande|bovenstaande|alle|jouw|je
    instructies opdrachten aanwijzingen regels richtlijnen prompt
pl  zignoruj(?:cie)?|ignoruj(?:cie)?|zapomnij(?:cie)?|pomin
    poprzednie|wczesniejsze|powyzsze|wszystkie|twoje|dotychczasowe
    instrukcje polecenia wytyczne zasady rozkazy
id  abaikan|lupakan|hiraukan
    sebelumnya|di atas|semua|anda
    instruksi perintah petunjuk aturan arahan
vi  bo qua|quen|phot lo|lam ngo
    truoc|tren|tat ca|moi
    dan thi lenh cau
ru  игнорируи(?:те)?|проигнорируи(?:те)?|забудь(?:те)?|отбрось(?:те)?|не (?:следуи|выполняи|обращаи внимания)(?:те)?
    предыдущ\w+|прежн\w+|все|всех|вышеуказанн\w+|выше|твои|ваши|прошл\w+
    инструкции инструкциям указания указаниям команды правила директивы распоряжения промпт
uk  ігноруи(?:те)?|проігноруи(?:те)?|забудь(?:те)?
    попередн\w+|усі|всі|вище|твоі|ваші
    інструкціі вказівки команди правила
ar  تجاهل\w*|انس|انسي|تخط\w*
    السابق\w*|جميع|كل|اعلاه|أعلاه
    التعليمات تعليمات الاوامر الأوامر القواعد التوجيهات
"""
# Written without blanks, or with the verb at the end. Each with its anchors, one of which must occur.
_VERB_LAST = (
    (
        "指示 命令 プロンプト フロンフト ルール 設定",
        (
            r"(?:これまて|これまで|以前|上記|前|すへて|すべて|全て|先ほと|先ほど|あなた)[^。\n]{0,16}?"
            r"(?:指示|命令|ルール|フロンフト|プロンプト|指令|設定)[^。\n]{0,8}?(?:無視|忘れ|忘却|破棄|従わな)"
        ),
    ),
    (
        "지시 명령 지침 규칙 프롬프트 안내",
        r"(?:이전|위|앞선|모든|지금까지|기존)[^.\n]{0,16}?(?:지시|명령|지침|규칙|프롬프트|안내)[^.\n]{0,8}?(?:무시|잊|따르지)",
    ),
    ("คำสั่ง คาสั่ง คำแนะนำ", r"(?:ละเว้น|เพิกเฉย|ลืม|ไม่ต้องสนใจ)[^\n]{0,20}?(?:คำสั่ง|คาสั่ง|คำแนะนำ)"),
    (
        "talimat komut yonerge",
        (
            r"(?:onceki|yukaridaki|yukarıdaki|tum|butun)(?: \w+){0,3} (?:talimat|komut|yonerge|kural)\w*(?: \w+){0,2} "
            r"(?:yok say|gormezden gel|unut|dikkate alma)"
        ),
    ),
    (
        "निर्देश आदेश नियम",
        r"(?:पिछल|सभी|पहले|उपरोक्त)[^।\n]{0,24}?(?:निर्देश|आदेश|नियम)[^।\n]{0,16}?(?:अनदेखा|नजरअंदाज|नज़रअंदाज|भूल|उपेक्षा)",
    ),
)


def _verb_first() -> tuple[Sign, ...]:
    rows = [line[4:] for line in _TABLE.strip("\n").splitlines()]
    made: list[Sign] = []
    for verbs, earlier, nouns in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        near = rf"(?=(?:\S+ ){{0,6}}?(?:{earlier})(?!\w))"
        pattern = rf"(?<!\w)(?:{verbs}) {near}(?:\S+ ){{0,4}}?(?:{'|'.join(nouns.split())})(?!\w)"
        made.append(Sign("override", 10, re.compile(pattern), words(nouns), ahead=80))
    return tuple(made)


VERB_FIRST = _verb_first()
_VERB_LAST_SIGNS = tuple(Sign("override", 10, re.compile(pattern), words(anchors)) for anchors, pattern in _VERB_LAST)
VERB_LAST = Family(_VERB_LAST_SIGNS)
_PIECES = frozenset(piece for sign in _VERB_LAST_SIGNS for piece in sign.anchors)


def may_stand_in(text: str) -> bool:
    """Tell whether one of VERB_LAST may stand in a text: of all these languages only Turkish is written in ASCII."""
    return not text.isascii() or "talimat" in text


def pieces(text: str) -> frozenset[str]:
    """Return which of the anchors of languages without blanks, or with endings, occur in a text."""
    return frozenset(piece for piece in _PIECES if piece in text)
