"""The caps, and what has been spent below each of them.

Sums of a day and a month are read from the journal when a cap first asks for them, and kept up from
then on: a decision about ten thousand routines that are due together is made from memory. What a
call under way may come to is held until it is known, and nobody else can spend it.

Where several processes spend from the same caps nothing of a day or a month is kept in memory: sums
are read for each call, what others have under way among them, and the row that sets a call's money
aside is written only if all caps still cover it (store/spending.py). What only calls of others
stand in the way of waits until these have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import BudgetConfig
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.routines.routine import Budget, Routine, RoutineDefinition
from daemon.errors import OverBudget
from daemon.providers.pricing import NANO, Prices, Rates
from daemon.store.spending import SpendingLimit
from daemon.system.clock import Clock

if TYPE_CHECKING:
    from daemon.definitions.config.live import LiveConfig
    from daemon.store.journal import Journal

# An answer that must be shorter than this is none.
LEAST = 1024
# The same within one run's tokens, which may be few.
LEAST_OF_RUN = 64
# What an answer is given room for where nobody says how long it may be.
MOST = 16_384
# Seconds between looks at what other processes have under way: each end of a call is told, this is
# for those missed.
LOOK = 5.0


@dataclass(kw_only=True, slots=True)
class Tally:
    """A running sum, and what calls under way may add to it."""

    cost: int = 0
    tokens: int = 0
    held_cost: int = 0
    held_tokens: int = 0


@dataclass(kw_only=True)  # no slots: it is found by the run for as long as somebody holds it
class RunBudget:
    """For whom calls are made, a run of a routine, and what it may spend; a part of a run spends
    from the whole too.
    """

    run: str
    routine: str
    budget: Budget
    parent: RunBudget | None = None
    tally: Tally | None = None
    """None until a cap asks what the run has spent."""

    def chain(self) -> Iterator[RunBudget]:
        """Yield this account and those that it also spends from."""
        account: RunBudget | None = self
        while account:
            yield account
            account = account.parent


@dataclass(frozen=True, kw_only=True, slots=True)
class Cap:
    """One limit, and where it stands."""

    rule: str
    """The key that sets it, with its value."""
    limit: int
    """Billionths of a dollar, or tokens."""
    tally: Tally
    dollars: bool
    least: int = LEAST
    """An answer that must be shorter is not asked for."""
    tokens: int | None = None
    """Of a run's tokens: how many it may use."""
    since: datetime | None = None
    """Of a day or a month: when it began."""
    routine: str = ""
    """Whose it is, where it is that of a routine."""

    @property
    def left(self) -> int:
        return self.limit - (self.tally.cost if self.dollars else self.tally.tokens)

    @property
    def held(self) -> int:
        return self.tally.held_cost if self.dollars else self.tally.held_tokens

    def room(self, size: int, rates: Rates | None, *, all_of_it: bool = False) -> float:
        """Return how many tokens an answer to an input of this size may have; `all_of_it`: were no
        call under way.
        """
        left = self.left if all_of_it else self.left - self.held
        if not self.dollars:
            return left - size
        if rates is None:
            return 0
        rest, token = left - size * rates.dearest(size), rates.output_token(size)
        return rest / token if token else MOST if rest >= 0 else 0

    def words(self) -> str:
        """Say what is left, for a person."""
        left = max(0, self.left)
        return (
            f"{self.rule}, ${left / NANO:.4f} left"
            if self.dollars
            else f"{self.rule}, {left} tokens left"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """What is set aside for one call."""

    cost: int
    tokens: int
    max_tokens: int
    tallies: tuple[Tally, ...] = field(repr=False)
    limits: tuple[SpendingLimit, ...] = ()
    """What must still hold as it is written down, where others spend too."""


_Period = tuple[int, ...]  # (year, month) or (year, month, day)


class BudgetLedger:
    """What may be spent, and what was."""

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Clock,
        settings: LiveConfig,
        shared: bool = False,
        look: float = LOOK,
    ) -> None:
        """`shared`: other processes spend from the same caps; `look`: how long to wait for word of
        what they do.
        """
        self._shared, self._look = shared, look
        self.journal, self.clock, self._settings = journal, clock, settings
        self._prices = (settings.config, Prices(settings.config))
        self._tallies: dict[tuple[_Period, str], Tally] = {}
        self._settled: asyncio.Event | None = None
        """Set when a call has come to its end; there where somebody waits for that."""

    @property
    def prices(self) -> Prices:
        """The prices of the config as it is now."""
        config, prices = self._prices
        if self._settings.config is not config:
            config = self._settings.config
            prices = Prices(config)
            self._prices = config, prices
        return prices

    @property
    def _budget(self) -> BudgetConfig:
        return self._settings.config.budget

    def capped(self, account: RunBudget, *, by_tokens: bool = False) -> bool:
        """Tell whether any limit of a day, a month or in dollars holds; `by_tokens`: or one of a
        run's tokens.
        """
        whole = self._budget
        if (
            whole.day is not None
            or whole.month is not None
            or whole.day_tokens
            or whole.month_tokens
        ):
            return True
        each: RunBudget | None = account
        while each:  # not through `chain`: this is asked before every call
            budget, each = each.budget, each.parent
            if budget.usd is not None or budget.day is not None or budget.month is not None:
                return True
            if by_tokens and budget.tokens is not None:
                return True
        return False

    async def hold(
        self, account: RunBudget, rates: Rates | None, *, size: int, wanted: int | None
    ) -> Reservation:
        """Set aside what a call may come to, whose input has `size` tokens and whose answer at most
        `wanted`.

        Raises OverBudget if a cap does not cover it. An answer is made shorter rather than refused,
        down to LEAST; and what only calls under way stand in the way of waits until they have come
        to less.
        """
        most = wanted or MOST
        while True:
            # before sums are read that others change: an end that is told meanwhile may not be
            # among them
            ended = self._next_end() if self._shared else None
            caps = await self.caps(account)
            for cap in caps:
                if cap.dollars and rates is None:
                    raise OverBudget(
                        "no price is known", rule=f"{cap.rule}, and the model has no known price"
                    )
                if cap.room(size, rates, all_of_it=True) < min(most, cap.least):
                    raise OverBudget(
                        "a cap does not cover another call", rule=cap.words(), tokens=cap.tokens
                    )
            if all(cap.room(size, rates) >= min(most, cap.least) for cap in caps):
                room = min([most, *(cap.room(size, rates) for cap in caps)])
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look if self._shared else None):
                    await (ended or self._next_end()).wait()
        tokens = int(room)
        cost = (
            int(size * rates.dearest(size) + tokens * rates.output_token(size)) + 1 if rates else 0
        )
        tallies = tuple({id(cap.tally): cap.tally for cap in caps}.values())
        for tally in tallies:
            tally.held_cost += cost
            tally.held_tokens += size + tokens
        limits = tuple(
            SpendingLimit(since=cap.since, routine=cap.routine, most=cap.limit, dollars=cap.dollars)
            for cap in caps
            if self._shared and cap.since
        )
        return Reservation(
            cost=cost, tokens=size + tokens, max_tokens=tokens, tallies=tallies, limits=limits
        )

    def _next_end(self) -> asyncio.Event:
        """Return what is set when a call has come to its end, here or, as far as we are told,
        elsewhere.
        """
        if self._settled is None:
            self._settled = asyncio.Event()
        return self._settled

    def settle(
        self, held: Reservation | None, account: RunBudget, at: datetime, *, cost: int, tokens: int
    ) -> None:
        """Count what a call came to in place of what was set aside for it."""
        for tally in held.tallies if held else self._kept_up(account, at):
            tally.cost += cost
            tally.tokens += tokens
            if held:
                tally.held_cost -= held.cost
                tally.held_tokens -= held.tokens
        if self._settled is not None:
            self.ring()

    def ring(self) -> None:
        """Let those look again who wait for a call to come to its end."""
        if self._settled is not None:
            self._settled.set()
            self._settled = None

    def _kept_up(self, account: RunBudget, at: datetime) -> list[Tally]:
        """Return the sums that a call without a cap belongs to as well: a cap may come with the
        next reload.
        """
        kept = [each.tally for each in account.chain() if each.tally]
        if self._tallies:
            local = at.astimezone(self._settings.zone)
            periods: tuple[_Period, ...] = (
                (local.year, local.month),
                (local.year, local.month, local.day),
            )
            keys = [(period, who) for period in periods for who in ("", account.routine)]
            kept += [self._tallies[key] for key in keys if key in self._tallies]
        return kept

    async def exhausted_cap(self, routine: Routine) -> str | None:
        """Return the cap that leaves no room for a run of `routine`, in words; None if there is
        room.
        """
        config = self._settings.config
        provider = routine.run.provider or config.provider
        if provider not in config.provider_names:
            return None  # the config names it no more; the run says so
        if config.provider_config(provider).kind == "offline":
            return None
        account = RunBudget(run="", routine=routine.name, budget=routine.run.budget)
        if not self.capped(account):
            return None
        known = await self.prices.soon(provider, routine.run.model)
        for cap in await self._caps_of_periods(account):
            if cap.left <= 0 or (known is not None and cap.room(0, known, all_of_it=True) < LEAST):
                return cap.words()
        return None

    async def standing(self, routines: Iterable[Routine]) -> list[tuple[str | None, Cap]]:
        """Return the caps of days and months as they stand: those of config.toml, then those of
        routines, by name.
        """
        none = Budget()
        whole = await self._caps_of_periods(RunBudget(run="", routine="", budget=none))
        found: list[tuple[str | None, Cap]] = [(None, cap) for cap in whole]
        for routine in routines:
            own = RunBudget(run="", routine=routine.name, budget=routine.run.budget)
            if own.budget.day is not None or own.budget.month is not None:
                caps = await self._caps_of_periods(own)
                found += [(routine.name, cap) for cap in caps[: len(caps) - len(whole)]]
        return found

    async def caps(self, account: RunBudget) -> list[Cap]:
        """Return every cap that holds for a call of this account."""
        found = await self._caps_of_periods(account)
        for each in account.chain():
            if each.budget.usd is None and each.budget.tokens is None:
                continue
            if each.tally is None:
                # set before it is awaited: what is spent meanwhile is added to it
                tally = each.tally = Tally()
                cost, tokens = await self.journal.spent_by_run(each.run)
                tally.cost, tally.tokens = tally.cost + cost, tally.tokens + tokens
            if each.budget.usd is not None:
                found.append(_cap("[run.budget] usd", each.budget.usd, each.tally))
            if (most := each.budget.tokens) is not None:
                rule = f"[run.budget] tokens = {most}"
                found.append(
                    Cap(
                        rule=rule,
                        limit=most,
                        tally=each.tally,
                        dollars=False,
                        least=LEAST_OF_RUN,
                        tokens=most,
                    )
                )
        return found

    async def _caps_of_periods(self, account: RunBudget) -> list[Cap]:
        local = self.clock.now().astimezone(self._settings.zone)
        day: _Period = (local.year, local.month, local.day)
        found = []
        whole, own = self._budget, account.budget
        for rule, limit, period, who in (
            ("[run.budget] day", own.day, day, account.routine),
            ("[run.budget] month", own.month, day[:2], account.routine),
            ("[budget] day", whole.day, day, ""),
            ("[budget] month", whole.month, day[:2], ""),
        ):
            if limit is not None:
                tally, since = await self._tally(period, who)
                found.append(_cap(rule, limit, tally, since=since, routine=who))
        for rule, tokens, period in (
            ("[budget] day_tokens", whole.day_tokens, day),
            ("[budget] month_tokens", whole.month_tokens, day[:2]),
        ):
            if tokens is not None:
                tally, since = await self._tally(period, "")
                rule = f"{rule} = {tokens}"
                found.append(Cap(rule=rule, limit=tokens, tally=tally, dollars=False, since=since))
        return found

    async def _tally(self, period: _Period, who: str) -> tuple[Tally, datetime]:
        """Return what was spent in a day or a month, and when that began."""
        year, month, day = (*period, 1)[:3]
        begin = datetime(year, month, day, tzinfo=self._settings.zone)
        if self._shared:
            cost, tokens, held_cost, held_tokens = await self.journal.standing_since(begin, who)
            return Tally(
                cost=cost, tokens=tokens, held_cost=held_cost, held_tokens=held_tokens
            ), begin
        if tally := self._tallies.get((period, who)):
            return tally, begin
        current = {key: tally for key, tally in self._tallies.items() if key[0][:2] == period[:2]}
        tally = current[period, who] = (
            Tally()
        )  # before it is awaited: what is spent meanwhile is added to it
        self._tallies = current
        for routine, (cost, tokens) in (await self.journal.spent_since(begin)).items():
            if who in ("", routine):
                tally.cost += cost
                tally.tokens += tokens
        return tally, begin


def _cap(
    rule: str, dollars: float, tally: Tally, *, since: datetime | None = None, routine: str = ""
) -> Cap:
    limit = round(dollars * NANO)
    return Cap(
        rule=f"{rule} = {dollars:g}",
        limit=limit,
        tally=tally,
        dollars=True,
        since=since,
        routine=routine,
    )


def priced(config: Config) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return more rules for `load_folder`: where dollars are capped, every model that may be asked
    needs a price.
    """
    prices = Prices(config)

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        run, whole = routine.run, config.budget
        own = [
            f"run.budget.{key}"
            for key in ("usd", "day", "month")
            if getattr(run.budget, key) is not None
        ]
        by = own + [
            f"budget.{key} of config.toml"
            for key in ("day", "month")
            if getattr(whole, key) is not None
        ]
        if not by:
            return
        first = run.provider or config.provider
        for name, model in ((first, run.model), *((name, None) for name in run.fallback)):
            if name in config.provider_names and prices.of(name, model) is None:
                model = model or config.provider_config(name).model
                problem = f"no price is known for {model or 'the model'} of provider {name}"
                hint = (
                    f"give it in config.toml, like providers.{name}.price = {{ input = 3.0, output "
                    "= 15.0 } (dollars"
                )
                hint += " per million tokens; 0 for one of your own), or cap tokens only"
                yield Conflict(
                    by[0] if own else "run.budget",
                    f"{problem}, and {by[0]} caps dollars",
                    hint=hint,
                )

    return (CrossFieldCheck(("run.budget", "run.provider", "run.model", "run.fallback"), check),)
