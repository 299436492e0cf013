"""Reports of twenty routines as models write them: the same subjects each time, and never quite the
same words.

No model is at hand, so a generator with a seed stands for one. For each report it chooses which
subjects to mention, in which order, in which of several wordings and in which form (prose, a list,
headings, a table); the numbers drift as those of a machine do, are compared with those before, and
now and then something happens that has names of its own: a package, an address, a file. For some
weeks a routine keeps to a few wordings and one form, and then has others, as after a change of the
model. A real model varies more in its words, and less in what it leaves out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import NamedTuple


class Kind(Enum):
    """What sort of report a routine writes."""

    DAILY = "daily"
    WATCHER = "watcher"
    """A few sentences."""
    HEARTBEAT = "heartbeat"
    """Silence, but for one time in eight."""
    TABLE = "table"
    """A table of numbers."""
    CHINESE = "chinese"


class OddReport(NamedTuple):
    """A sentence that one report alone has, and a question that it answers."""

    sentence: str
    question: str
    routine: int = 0
    """The routine that reports it."""
    at: float = 0.5
    """When, as a share of the time in which odd reports are written."""


class Report(NamedTuple):
    """What a tool brought, and what the model made of it."""

    result: str
    text: str
    odd: OddReport | None = None


# Ends a report of a heartbeat that has nothing to say; `silent_token` of its routine.
SILENCE = "NOTHING TO REPORT"

# What stands in one report only, and a person asks about later.
ODD_REPORTS = (
    OddReport("The disk of the mail spool is full; nothing was accepted for an hour.",
              "when was the disk of the mail spool full", 0, 0.13),
    OddReport("certbot could not renew the certificate of shop.example.org: the challenge failed.",
              "which certificate could certbot not renew", 8, 0.05),
    OddReport("/data stands at 100 % since a dump was left behind.",
              "was /data ever at 100 %", 1, 0.47),
    OddReport("The load climbed to 37.5 while the photographs were indexed.",
              "when did the load reach 37.5", 0, 0.58),
    OddReport("No backup arrived from the host birch last night.",
              "which host sent no backup", 2, 0.72),
    OddReport("机房空调漏水,维修人员更换了三号压缩机的密封圈。",
              "空调的哪台压缩机换过密封圈", 7, 0.86),
)  # fmt: skip

_QUARTER, _HOUR, _DAY = timedelta(minutes=15), timedelta(hours=1), timedelta(days=1)


class Reporter(NamedTuple):
    """One of the twenty routines."""

    number: int
    kind: Kind
    every: timedelta

    @property
    def name(self) -> str:
        return f"{self.kind.value}-{self.number:02}"

    @property
    def subjects(self) -> list[str]:
        """The keys of `_SUBJECTS` that it reports on: four to six of ten."""
        names = list(_SUBJECTS)
        return [names[(self.number * 3 + step) % len(names)] for step in range(4 + self.number % 3)]

    @property
    def goal(self) -> str:
        """What it is asked for, some 60 words."""
        return _GOALS[self.kind].format(
            subjects=("、" if self.kind is Kind.CHINESE else ", ").join(
                _CHINESE_NAMES[subject] if self.kind is Kind.CHINESE else subject
                for subject in self.subjects
            )
        )


_MORE_OF_ALL = (
    " Compare with what was reported before, name anything that is new, odd or getting worse, and"
    " say plainly when nothing needs attention. Do not repeat figures that have not changed."
)
_GOALS = {
    Kind.DAILY: "Write a short report on this machine for its administrator: {subjects}."
    + _MORE_OF_ALL
    + " Keep it below ten sentences and leave out greetings.",
    Kind.WATCHER: "Look at the readings of the last hour and say in a few sentences how this"
    " machine is: {subjects}." + _MORE_OF_ALL,
    Kind.HEARTBEAT: "You watch this machine while its owner is away: {subjects}. Speak up only if"
    f" somebody has to act, in at most five lines; else answer exactly {SILENCE}." + _MORE_OF_ALL,
    Kind.TABLE: "Lay out the readings of this machine as a Markdown table with a row for each"
    " figure, its value now and the one before: {subjects}. Add a note where a figure has left its"
    " usual range.",
    Kind.CHINESE: "请为管理员写一份关于这台机器的简短报告,内容包括{subjects}。与之前的报告比较,"
    "指出新出现的、异常的或正在恶化的情况;如果没有需要注意的事项,请直接说明。"
    "不要重复没有变化的数字,全文不超过十句,不要问候语。",
}

_W, _H, _T, _D, _C = Kind.WATCHER, Kind.HEARTBEAT, Kind.TABLE, Kind.DAILY, Kind.CHINESE
# One each quarter of an hour, seven each hour, twelve each day.
ROUTINES = (
    Reporter(0, _W, _QUARTER),
    *(Reporter(1 + n, kind, _HOUR) for n, kind in enumerate((_W, _W, _H, _H, _T, _T, _C))),
    *(
        Reporter(8 + n, kind, _DAY)
        for n, kind in enumerate((_D, _D, _D, _D, _D, _D, _D, _D, _T, _C, _C, _C))
    ),
)
RUNS_PER_DAY = sum(_DAY / routine.every for routine in ROUTINES)

# What a routine looks at: its numbers as (name, begin, step, least, greatest), ways to say it, and
# in Chinese. A number's step is the deviation of its drift from one report to the next.
_SUBJECTS: dict[
    str,
    tuple[tuple[tuple[str, float, float, float, float], ...], tuple[str, ...], tuple[str, ...]],
] = {
    "disk": ((("root", 41, 0.6, 20, 88), ("home", 63, 0.4, 30, 91)), (
        "Root is {root:.0f} % full and home {home:.0f} %.",
        "The file systems: / at {root:.0f} %, /home at {home:.0f} %.",
        "Disk usage stands at {root:.0f} % on the root volume; /home uses {home:.0f} %.",
        "There is room left on both disks ({root:.0f} % and {home:.0f} % used).",
        "/home has grown to {home:.0f} %, the root file system is at {root:.0f} %.",
        "Storage is not a concern: {root:.1f} percent of / and {home:.1f} percent of /home.",
        "Neither volume is close to its limit, with {home:.0f} % on /home and {root:.0f} % on /.",
    ), (
        "根分区已使用 {root:.0f}%,家目录已使用 {home:.0f}%。",
        "磁盘空间充足:/ 占用 {root:.0f}%,/home 占用 {home:.0f}%。",
        "/home 的使用率为 {home:.0f}%,根文件系统为 {root:.0f}%。",
        "两块磁盘都还有余量(分别用了 {root:.0f}% 和 {home:.0f}%)。",
    )),
    "load": ((("load", 0.6, 0.2, 0.05, 4.8),), (
        "The load average was {load:.2f} over five minutes.",
        "Load is moderate at {load:.2f}.",
        "The machine was not busy: a load of {load:.2f}.",
        "With a load of {load:.2f} the processors had little to do.",
        "CPU pressure is low ({load:.2f}).",
        "On average {load:.1f} processes wanted a processor.",
    ), (
        "五分钟平均负载为 {load:.2f}。",
        "负载不高,为 {load:.2f}。",
        "处理器比较空闲,负载 {load:.2f}。",
    )),
    "memory": ((("free", 5.1, 0.3, 1.1, 9.7),), (
        "{free:.1f} GiB of memory are free.",
        "Free memory: {free:.1f} GiB, no swapping.",
        "Memory is fine, {free:.1f} GiB remain available.",
        "Nothing presses on memory ({free:.1f} GiB available).",
        "The machine has {free:.1f} GiB to spare and does not swap.",
        "RAM headroom is {free:.1f} GiB.",
    ), (
        "可用内存 {free:.1f} GiB,没有使用交换空间。",
        "内存充裕,还剩 {free:.1f} GiB。",
        "空闲内存为 {free:.1f} GiB。",
    )),
    "backup": ((("size", 118, 1.5, 90, 260), ("minutes", 22, 2, 9, 58)), (
        "The backup finished after {minutes:.0f} minutes and holds {size:.0f} GB.",
        "Last night's backup: {size:.0f} GB in {minutes:.0f} minutes, verified.",
        "Backups ran through, {size:.0f} GB this time.",
        "It took {minutes:.0f} minutes to write the backup of {size:.0f} GB.",
        "The archive grew to {size:.1f} GB; writing it took {minutes:.0f} minutes.",
        "restic reports a complete snapshot of {size:.0f} GB.",
    ), (
        "备份用时 {minutes:.0f} 分钟,大小 {size:.0f} GB。",
        "昨晚的备份已完成并校验,共 {size:.0f} GB。",
        "备份正常结束,耗时 {minutes:.0f} 分钟。",
    )),
    "certificate": ((("days", 61, 1, 8, 89),), (
        "The next certificate expires in {days:.0f} days.",
        "Certificates are valid for at least {days:.0f} more days.",
        "No certificate runs out within {days:.0f} days.",
        "All certificates look good; the earliest ends in {days:.0f} days.",
        "TLS is covered for another {days:.0f} days.",
    ), (
        "最早到期的证书还有 {days:.0f} 天。",
        "所有证书至少还有 {days:.0f} 天有效。",
        "证书状态正常,{days:.0f} 天内不会过期。",
    )),
    "update": ((("count", 4, 2, 0, 37),), (
        "{count:.0f} packages can be updated, none of them urgent.",
        "There are {count:.0f} pending updates.",
        "apt lists {count:.0f} upgradable packages.",
        "Pending updates: {count:.0f}, no security fixes among them.",
        "The package manager would install {count:.0f} new versions.",
    ), (
        "有 {count:.0f} 个软件包可以更新,都不紧急。",
        "待更新的软件包:{count:.0f} 个。",
        "目前有 {count:.0f} 项更新,不含安全修复。",
    )),
    "mail": ((("unread", 12, 4, 0, 80), ("old", 3, 1, 0, 19)), (
        "{unread:.0f} mails are unread, {old:.0f} of them older than a day.",
        "The inbox holds {unread:.0f} unread messages; {old:.0f} have waited since yesterday.",
        "You have {unread:.0f} new mails.",
        "Of {unread:.0f} unread mails {old:.0f} need an answer soon.",
        "Mail: {unread:.0f} unread, {old:.0f} overdue.",
    ), (
        "收件箱有 {unread:.0f} 封未读邮件,其中 {old:.0f} 封已超过一天。",
        "未读邮件 {unread:.0f} 封。",
        "有 {old:.0f} 封邮件需要尽快回复,另有 {unread:.0f} 封未读。",
    )),
    "service": ((("restarts", 1, 1, 0, 9),), (
        "All services run; {restarts:.0f} were restarted.",
        "systemd knows of no failed unit and counted {restarts:.0f} restarts.",
        "No unit failed, and there were {restarts:.0f} restarts since the last check.",
        "Services are healthy ({restarts:.0f} restarts).",
        "Every unit is active; restarts: {restarts:.0f}.",
    ), (
        "所有服务运行正常,重启 {restarts:.0f} 次。",
        "没有失败的单元,期间重启了 {restarts:.0f} 次。",
        "服务状态良好(重启 {restarts:.0f} 次)。",
    )),
    "login": ((("failed", 140, 30, 20, 400),), (
        "ssh refused {failed:.0f} logins, as on any day.",
        "{failed:.0f} failed logins were counted, all from known scanners.",
        "There were {failed:.0f} rejected ssh attempts and no unknown success.",
        "The log shows {failed:.0f} failed logins, nothing out of the ordinary.",
        "Authentication noise: {failed:.0f} refused attempts.",
    ), (
        "ssh 拒绝了 {failed:.0f} 次登录,与平时相当。",
        "共有 {failed:.0f} 次失败的登录尝试,均来自已知的扫描器。",
        "登录日志中有 {failed:.0f} 次失败,没有异常。",
    )),
    "web": ((("requests", 5200, 400, 900, 14000), ("errors", 6, 3, 0, 60)), (
        "The web server answered {requests:.0f} requests with {errors:.0f} errors.",
        "{requests:.0f} requests came in; {errors:.0f} of them failed.",
        "Traffic was normal at {requests:.0f} requests ({errors:.0f} errors).",
        "nginx served {requests:.0f} requests, {errors:.0f} ended in a 5xx.",
        "{errors:.0f} of {requests:,.0f} HTTP requests returned a server error.",
    ), (
        "网站共处理 {requests:.0f} 个请求,其中 {errors:.0f} 个出错。",
        "访问量正常:{requests:.0f} 个请求,{errors:.0f} 个错误。",
        "nginx 处理了 {requests:.0f} 个请求。",
    )),
}  # fmt: skip
_CHINESE_NAMES = {
    "disk": "磁盘", "load": "负载", "memory": "内存", "backup": "备份", "certificate": "证书",
    "update": "更新", "mail": "邮件", "service": "服务", "login": "登录", "web": "网站",
}  # fmt: skip

# What happens now and then, with names that no other report has.
_EVENTS = (
    "{package} was upgraded to {version} by unattended-upgrades.",
    "A new address, {address}, tried {number} names within a minute and was blocked.",
    "The largest new file is /home/{user}/{word}-{number}.tar ({size} GB).",
    "{user} logged in from {address} for the first time.",
    "The job {word}-{word2} took {number} s, twice as long as usual.",
    "{number} mails about \u201c{word} {word2}\u201d arrived from {user}@{word}.example.",
    "The commit {hash} by {user} touched {number} files of {word2}.",
    "A process of {user}, {word}d (pid {pid}), used a whole processor for {number} minutes.",
    "GET /{word}/{word2} was answered with 404 for {number} visitors.",
    "The container {word}-{hash} was restarted after running out of memory.",
)
_CHINESE_EVENTS = (
    "软件包 {package} 已升级到 {version}。",
    "新地址 {address} 在一分钟内尝试了 {number} 个用户名,已被封禁。",
    "用户 {user} 首次从 {address} 登录。",
    "任务 {word}-{word2} 运行了 {number} 秒,是平时的两倍。",
    "容器 {word}-{hash} 因内存不足被重启。",
)
_SYLLABLES = (
    "ka", "lo", "mi", "ren", "tas", "vor", "bel", "du", "fen", "gor", "hal", "jun", "nel", "pra",
    "qui", "sol", "tur", "wes", "xan", "zed",
)  # fmt: skip
_USERS = ("ada", "bruno", "chen", "dora", "emil", "farah", "greta", "hugo", "ines", "jonas", "kofi")

_OPENINGS = (
    "All is well.", "Nothing unusual today.", "Here is the summary.", "A quiet period overall.",
    "Everything looks normal.", "No action is needed.", "The machine is in good shape.", "", "", "",
)  # fmt: skip
_ENDINGS = (
    "No further action is required.", "I will look again next time.", "That is all.",
    "Nothing needs your attention.", "Let me know if you want details.", "", "", "", "",
)  # fmt: skip
_CHINESE_OPENINGS = ("一切正常。", "今天没有异常。", "概况如下。", "整体运行平稳。", "", "")
_CHINESE_ENDINGS = ("无需处理。", "下次继续观察。", "没有需要注意的事项。", "", "", "")
_COMPARISONS = (
    "{name} was {before:.1f} before.", "That is {difference:.1f} {more} than last time.",
    "Compared with the last report, {name} changed by {difference:.1f}.",
    "({name}: {before:.1f} \u2192 {now:.1f})",
)  # fmt: skip
_CHINESE_COMPARISONS = ("上次为 {before:.1f}。", "比上次{more}了 {difference:.1f}。")
# Days for which a routine has one voice.
_VOICE_DAYS = 45
_FORMS = ("prose", "prose", "list", "headings")


class _Voice(NamedTuple):
    """The habits of a model: the form of its reports, and some of all wordings by subject."""

    form: str
    wordings: dict[str, list[str]]


class ReportWriter:
    """Writes the reports of one routine, one after the other."""

    def __init__(self, routine: Reporter, *, seed: int = 7, varied: bool = True) -> None:
        """Without `varied` the reports differ in their numbers alone."""
        self._routine, self._varied = routine, varied
        self._chance = random.Random(f"{seed}/{routine.number}")
        self._voices = random.Random(f"{seed}/{routine.number}/voice")
        self._values = {
            name: first for subject in routine.subjects for name, first, *_ in _SUBJECTS[subject][0]
        }
        self._voice: _Voice | None = None
        self._voice_until: datetime | None = None

    def write(self, at: datetime, odd: OddReport | None = None) -> Report:
        """Write the report of this moment; `odd` stands in it, too."""
        chance, before = self._chance, dict(self._values)
        for subject in self._routine.subjects:
            for name, _, step, least, greatest in _SUBJECTS[subject][0]:
                next_value = self._values[name] + chance.gauss(0, step)
                self._values[name] = min(greatest, max(least, next_value))
        event = self._event() if self._varied and chance.random() < 0.35 else ""
        readings = [f"{name}={value:.2f}" for name, value in self._values.items()]
        result = "\n".join(filter(None, [*readings, f"log: {event}" if event else ""]))
        if self._routine.kind is Kind.HEARTBEAT and not odd and chance.random() > 0.125:
            return Report(result, SILENCE)
        if self._routine.kind is Kind.TABLE:
            return Report(result, self._table(before, [odd.sentence] if odd else []), odd)
        return Report(result, self._text(at, before, event, odd), odd)

    def _text(
        self, at: datetime, before: dict[str, float], event: str, odd: OddReport | None
    ) -> str:
        chance, voice, subjects = self._chance, self._voice_at(at), self._routine.subjects
        if self._varied:
            subjects = [subject for subject in subjects if chance.random() > 0.15] or subjects
            chance.shuffle(subjects)
        sentences = []
        for subject in subjects:
            wording = chance.choice(voice.wordings[subject]) if self._varied else (
                voice.wordings[subject][0]
            )  # fmt: skip
            sentence = wording.format_map(self._values)
            if self._varied and chance.random() < 0.2:
                sentence += ("" if self._is_chinese else " ") + self._comparison(subject, before)
            sentences.append(sentence)
        for extra in filter(None, (event, odd.sentence if odd else "")):
            sentences.insert(chance.randrange(len(sentences) + 1), extra)
        if not self._varied:
            return " ".join(sentences)
        opening = chance.choice(_CHINESE_OPENINGS if self._is_chinese else _OPENINGS)
        ending = chance.choice(_CHINESE_ENDINGS if self._is_chinese else _ENDINGS)
        match voice.form:
            case "list":
                lines = [opening, *(f"- {sentence}" for sentence in sentences), ending]
                return "\n".join(filter(None, lines))
            case "headings":
                half = len(sentences) // 2
                parts = [
                    "## " + ("状态" if self._is_chinese else "Status"),
                    self._join([opening, *sentences[:half]]),
                    "## " + ("其他" if self._is_chinese else "Also worth knowing"),
                    self._join([*sentences[half:], ending]),
                ]
                return "\n\n".join(parts)
            case _:
                return self._join([opening, *sentences, ending])

    def _table(self, before: dict[str, float], notes: list[str]) -> str:
        rows = [
            f"| {name} | {value:.1f} | {before[name]:.1f} |" for name, value in self._values.items()
        ]
        return "\n".join(["| figure | now | before |", "|---|--:|--:|", *rows, *notes])

    def _join(self, sentences: list[str]) -> str:
        return ("" if self._is_chinese else " ").join(filter(None, sentences))

    def _comparison(self, subject: str, before: dict[str, float]) -> str:
        name = _SUBJECTS[subject][0][0][0]
        now, earlier = self._values[name], before[name]
        more, less = ("增加", "减少") if self._is_chinese else ("more", "less")
        return self._chance.choice(
            _CHINESE_COMPARISONS if self._is_chinese else _COMPARISONS
        ).format(
            name=name,
            now=now,
            before=earlier,
            difference=abs(now - earlier),
            more=more if now >= earlier else less,
        )

    def _event(self) -> str:
        chance = self._chance

        def word() -> str:
            return "".join(chance.choices(_SYLLABLES, k=chance.randrange(2, 4)))

        return chance.choice(_CHINESE_EVENTS if self._is_chinese else _EVENTS).format(
            package=f"lib{word()}{chance.randrange(1, 9)}",
            version=f"{chance.randrange(1, 9)}.{chance.randrange(30)}.{chance.randrange(20)}",
            address=".".join(str(chance.randrange(1, 255)) for _ in range(4)),
            number=chance.randrange(3, 900),
            size=chance.randrange(1, 40),
            user=chance.choice(_USERS),
            word=word(),
            word2=word(),
            hash=f"{chance.getrandbits(32):08x}",
            pid=chance.randrange(300, 65_000),
        )

    def _voice_at(self, at: datetime) -> _Voice:
        if self._voice is None or self._voice_until is None or at >= self._voice_until:
            column = 2 if self._is_chinese else 1
            all_wordings = {key: list(_SUBJECTS[key][column]) for key in self._routine.subjects}
            if self._varied:
                wordings = {
                    key: self._voices.sample(texts, 3) for key, texts in all_wordings.items()
                }
                self._voice = _Voice(self._voices.choice(_FORMS), wordings)
            else:
                self._voice = _Voice("prose", all_wordings)
            self._voice_until = at + timedelta(days=_VOICE_DAYS)
        return self._voice

    @cached_property
    def _is_chinese(self) -> bool:
        return self._routine.kind is Kind.CHINESE


class OddReportPlan:
    """Hands out each odd report once, to the first report of its routine after its moment."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        """They are spread over the time from `begin` to `end`."""
        self._due_reports = [(begin + (end - begin) * odd.at, odd) for odd in ODD_REPORTS]

    def take(self, routine: Reporter, at: datetime) -> OddReport | None:
        for entry in self._due_reports:
            due, odd = entry
            if odd.routine == routine.number and due <= at:
                self._due_reports.remove(entry)
                return odd
        return None


def reports(
    runs: int, *, end: datetime, days: float = 0, seed: int = 7, varied: bool = True
) -> Iterator[tuple[Reporter, datetime, Report]]:
    """Yield so many reports of all routines with their moments, the oldest first, the last of them
    before `end`; with `days` spread over so many days, else as often as the routines run.
    """
    stretch = days * RUNS_PER_DAY / runs if days else 1.0
    begin = end - stretch * timedelta(days=runs / RUNS_PER_DAY)
    writers = [ReportWriter(routine, seed=seed, varied=varied) for routine in ROUTINES]
    # by routine: its slots are offset, so that not all of them fall into one minute
    intervals = [stretch * routine.every for routine in ROUTINES]
    slots = [begin + every * (number + 1) / 21 for number, every in enumerate(intervals)]
    plan = OddReportPlan(begin, end)
    for _ in range(runs):
        number = min(range(len(slots)), key=slots.__getitem__)
        at, slots[number] = slots[number], slots[number] + intervals[number]
        yield ROUTINES[number], at, writers[number].write(at, plan.take(ROUTINES[number], at))
