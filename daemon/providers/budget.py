"""Caps on spending, and what has been spent under each of them.

The totals of a day and a month are read from the journal when a cap first needs them, and updated
in memory from then on: so a decision about ten thousand routines that are due together needs no
query. The most that a call under way may cost is reserved until its cost is known.

Where several processes spend under the same caps, no total of a day or a month is kept in memory.
Totals are read for each call, with the reservations of other processes, and a reservation is
written only if all caps still cover it (store/spending.py). A call that does not fit because of
reservations of others waits until these are settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import structlog

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import BudgetConfig
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.routines.routine import Budget, Routine, RoutineDefinition
from daemon.errors import OverBudget, StoreFull
from daemon.providers.pricing import NANO, Prices, Rates
from daemon.store.spending import SpendingLimit
from daemon.system.clock import Clock

if TYPE_CHECKING:
    from daemon.definitions.config.live import LiveConfig
    from daemon.store.incidents import IncidentRepository
    from daemon.store.spending import SpendingRepository

log = structlog.get_logger()

# Tokens. A call is refused rather than made with room for a shorter answer than this.
MIN_ANSWER = 1024
# The same for a run's cap on tokens, which may be small.
MIN_ANSWER_OF_RUN = 64
# Tokens reserved for an answer if no limit is set.
DEFAULT_ANSWER = 16_384
# Seconds between queries for reservations of other processes. Each settlement is notified; this
# covers a notification that was lost.
POLL_INTERVAL = 5.0


# The time for which a cap limits what is spent.
CapPeriod = Literal["run", "day", "month"]


@dataclass(kw_only=True, slots=True)
class RunningTotal:
    """What was spent under a cap, and what calls under way may add to it."""

    cost: int = 0
    """Billionths of a dollar, as all costs here."""
    tokens: int = 0
    reserved_cost: int = 0
    reserved_tokens: int = 0


@dataclass(kw_only=True)  # no slots: runs/context.py keeps it in a weak dictionary
class RunBudget:
    """What a run may spend, and has spent. A sub-agent also spends from the budget of its
    `parent`.
    """

    run: str
    routine: str
    """The routine that pays: of a sub-agent, that of its parent."""
    budget: Budget
    """The limits of its routine."""
    parent: RunBudget | None = None
    total: RunningTotal | None = None
    """None until a cap needs what the run has spent."""

    def chain(self) -> Iterator[RunBudget]:
        """Yield this budget, then those that it also spends from."""
        payer: RunBudget | None = self
        while payer:
            yield payer
            payer = payer.parent


@dataclass(frozen=True, kw_only=True, slots=True)
class Cap:
    """One limit, and what has been spent under it."""

    key: str
    """The key of config.toml or of a routine that sets the limit, such as `[budget] day`."""
    period: CapPeriod
    limit: int
    """Billionths of a dollar, or tokens."""
    total: RunningTotal
    is_money: bool
    min_answer: int = MIN_ANSWER
    """Tokens. A call is refused rather than made with room for a shorter answer."""
    tokens: int | None = None
    """The limit again, for a cap on a run's tokens only."""
    start: datetime | None = None
    """When the day or month of the cap began; None for a cap on a run."""
    routine: str = ""
    """The routine whose cap it is; empty for a cap on all routines."""

    @property
    def setting(self) -> str:
        """The key with its value."""
        return (
            f"{self.key} = {self.limit / NANO:g}" if self.is_money else f"{self.key} = {self.limit}"
        )

    @property
    def remaining(self) -> int:
        return self.limit - (self.total.cost if self.is_money else self.total.tokens)

    @property
    def reserved(self) -> int:
        return self.total.reserved_cost if self.is_money else self.total.reserved_tokens

    def answer_room(
        self, input_tokens: int, rates: Rates | None, *, ignore_reservations: bool = False
    ) -> float:
        """Return how many tokens the answer to an input of `input_tokens` may have; negative if the
        cap does not cover the input itself. With `ignore_reservations`, as if no call were under
        way.
        """
        remaining = self.remaining if ignore_reservations else self.remaining - self.reserved
        if not self.is_money:
            return remaining - input_tokens
        if rates is None:
            return 0
        remainder = remaining - input_tokens * rates.max_input_token_cost(input_tokens)
        token_cost = rates.output_token_cost(input_tokens)
        if not token_cost:  # a model that costs nothing
            return DEFAULT_ANSWER if remainder >= 0 else 0
        return remainder / token_cost

    def describe(self) -> str:
        """Return the setting and what remains under it, for a person."""
        remaining = max(0, self.remaining)
        if self.is_money:
            return f"{self.setting}, ${remaining / NANO:.4f} left"
        return f"{self.setting}, {remaining} tokens left"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """What is reserved for one call: the most that it may cost."""

    cost: int
    tokens: int
    max_tokens: int
    totals: tuple[RunningTotal, ...] = field(repr=False)
    limits: tuple[SpendingLimit, ...] = ()
    """Caps that the database checks again when it writes the reservation, as other processes spend
    as well.
    """


_Date = tuple[int, ...]  # (year, month) or (year, month, day)


class BudgetLedger:
    """Knows all caps, reserves what calls may cost and counts what they did cost."""

    def __init__(
        self,
        spending: SpendingRepository,
        *,
        clock: Clock,
        settings: LiveConfig,
        is_shared: bool = False,
        poll_interval: float = POLL_INTERVAL,
        incidents: IncidentRepository | None = None,
    ) -> None:
        """`is_shared`: other processes spend under the same caps. `incidents` writes the warnings
        of `[budget] warn_at`; without it nobody is warned.
        """
        self.spending = spending
        self.clock = clock
        self._settings = settings
        self._is_shared = is_shared
        self._poll_interval = poll_interval
        self._prices = (settings.config, Prices(settings.config))
        self._totals: dict[tuple[_Date, str], RunningTotal] = {}
        self._incidents = incidents
        self._load_lock = asyncio.Lock()
        """Held while a total is read: a second caller must not see it before it is complete."""
        self._last_warnings: dict[str, tuple[str, int]] = {}
        """By cap: the day or month of its last warning, and the per cent."""
        self._settlement_event: asyncio.Event | None = None
        """Set at the next settlement; None while nobody waits for one."""

    @property
    def prices(self) -> Prices:
        """The prices by the current config."""
        config, prices = self._prices
        if self._settings.config is not config:
            config = self._settings.config
            prices = Prices(config)
            self._prices = config, prices
        return prices

    @property
    def _budget(self) -> BudgetConfig:
        return self._settings.config.budget

    def has_caps(self, run_budget: RunBudget, *, include_tokens: bool = False) -> bool:
        """Return whether a cap on a day, on a month or on dollars applies; with `include_tokens`,
        or one on a run's tokens.
        """
        limits = self._budget
        if (
            limits.day is not None
            or limits.month is not None
            or limits.day_tokens
            or limits.month_tokens
        ):
            return True
        payer: RunBudget | None = run_budget
        while payer:  # a loop instead of `chain`, as this runs before every call of a model
            budget, payer = payer.budget, payer.parent
            if budget.usd is not None or budget.day is not None or budget.month is not None:
                return True
            if include_tokens and budget.tokens is not None:
                return True
        return False

    async def reserve(
        self,
        run_budget: RunBudget,
        rates: Rates | None,
        *,
        input_tokens: int,
        max_tokens: int | None,
    ) -> Reservation:
        """Reserve what a call may cost, whose input has `input_tokens` and whose answer at most
        `max_tokens` tokens (None: DEFAULT_ANSWER).

        Raises OverBudget if a cap does not cover the call. An answer is made shorter rather than
        refused, down to the cap's `min_answer`. If the call does not fit only because of calls
        under way, waits until these are settled. `rates` is None where no cap is on money, or for
        a model without a known price.
        """
        max_answer = max_tokens or DEFAULT_ANSWER
        while True:
            # Before the totals are read: a settlement that is notified in between may not be in
            # them.
            settlement = self._next_settlement() if self._is_shared else None
            caps = await self.caps(run_budget)
            for cap in caps:
                if cap.is_money and rates is None:
                    raise OverBudget(
                        "no price is known", rule=f"{cap.setting}, and the model has no known price"
                    )
                room = cap.answer_room(input_tokens, rates, ignore_reservations=True)
                if room < min(max_answer, cap.min_answer):
                    raise OverBudget(
                        "a cap does not cover another call", rule=cap.describe(), tokens=cap.tokens
                    )
            rooms = [(cap, cap.answer_room(input_tokens, rates)) for cap in caps]
            if all(room >= min(max_answer, cap.min_answer) for cap, room in rooms):
                answer_tokens = int(min([max_answer, *(room for _, room in rooms)]))
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_interval if self._is_shared else None):
                    await (settlement or self._next_settlement()).wait()
        cost = 0
        if rates:
            cost = 1 + int(
                input_tokens * rates.max_input_token_cost(input_tokens)
                + answer_tokens * rates.output_token_cost(input_tokens)
            )
        # also those that no cap in force needs: the next reload may set one
        counted_totals = [cap.total for cap in caps]
        counted_totals += self._totals_in_memory(run_budget, self.clock.now())
        totals = tuple({id(total): total for total in counted_totals}.values())
        for total in totals:
            total.reserved_cost += cost
            total.reserved_tokens += input_tokens + answer_tokens
        limits = tuple(
            SpendingLimit(
                since=cap.start, routine=cap.routine, amount=cap.limit, is_money=cap.is_money
            )
            for cap in caps
            if self._is_shared and cap.start
        )
        return Reservation(
            cost=cost,
            tokens=input_tokens + answer_tokens,
            max_tokens=answer_tokens,
            totals=totals,
            limits=limits,
        )

    def _next_settlement(self) -> asyncio.Event:
        """Return the event that is set at the next settlement, of this process or another one."""
        if self._settlement_event is None:
            self._settlement_event = asyncio.Event()
        return self._settlement_event

    def settle(
        self,
        reservation: Reservation | None,
        run_budget: RunBudget,
        at: datetime,
        *,
        cost: int,
        tokens: int,
    ) -> None:
        """Count what a call cost, in place of its reservation if it had one. `at` is its start."""
        totals = reservation.totals if reservation else self._totals_in_memory(run_budget, at)
        for total in totals:
            total.cost += cost
            total.tokens += tokens
            if reservation:
                total.reserved_cost -= reservation.cost
                total.reserved_tokens -= reservation.tokens
        if self._settlement_event is not None:
            self.notify_waiters()

    def notify_waiters(self) -> None:
        """Wake the calls that wait for a settlement."""
        if self._settlement_event is not None:
            self._settlement_event.set()
            self._settlement_event = None

    def _totals_in_memory(self, run_budget: RunBudget, at: datetime) -> list[RunningTotal]:
        """Return all totals in memory that count a call made at this time, whether a cap in force
        needs them or not.
        """
        totals = [payer.total for payer in run_budget.chain() if payer.total]
        if self._totals:
            local_time = at.astimezone(self._settings.zone)
            dates: tuple[_Date, ...] = (
                (local_time.year, local_time.month),
                (local_time.year, local_time.month, local_time.day),
            )
            keys = [(date, routine) for date in dates for routine in ("", run_budget.routine)]
            totals += [self._totals[key] for key in keys if key in self._totals]
        return totals

    async def warn(self, run_budget: RunBudget) -> None:
        """Tell people, once in each day or month, that as much of a cap is spent as a level of
        `[budget] warn_at` says. If several levels are reached at once, the highest is told.

        The notice is sent when the outbox looks next, at the latest with the end of the run.
        """
        levels = self._budget.warn_at
        if levels is None or self._incidents is None:
            return
        for cap in await self._caps_of_periods(run_budget):
            spent = cap.limit - cap.remaining
            level = max((level for level in levels if spent * 100 >= cap.limit * level), default=0)
            if level:
                consequence = "A call that the cap does not cover is not made"
                await self._warn_people(cap, level, f"{level} % of {cap.key} is spent", consequence)

    async def _warn_people(self, cap: Cap, level: int, problem: str, consequence: str) -> None:
        """Tell people about a cap, unless they were told of this level or a higher one in its day
        or month.
        """
        subject, start = f"{cap.routine} {cap.key}".strip(), f"{cap.start:%Y-%m-%d}"
        last_start, last_level = self._last_warnings.get(subject, ("", 0))
        if self._incidents is None or (last_start == start and last_level >= level):
            return
        if not cap.limit:  # a cap of 0 switches models off: whoever set it needs no warning
            return
        spent = cap.limit - cap.remaining
        amounts = f"{spent} of {cap.limit} tokens"
        if cap.is_money:
            amounts = f"${spent / NANO:.4f} of ${cap.limit / NANO:.2f}"
        owner = f"{cap.routine}: " if cap.routine else ""
        text = f"{amounts} since {start}. {consequence}; `agentctl usage` shows what was spent."
        try:
            is_new = await self._incidents.warn_once(
                f"budget warning: {subject}", start, level, title=f"{owner}{problem}", text=text
            )
        except StoreFull:  # which the next write meets as well
            return
        self._last_warnings[subject] = (start, level)
        if is_new:
            log.warning(
                "budget.warning", cap=cap.key, routine=cap.routine, percent=level, spent=amounts
            )

    async def find_used_up_cap(self, routine: Routine) -> str | None:
        """Return the cap that leaves no room for a run of `routine`, described for a person;
        None if there is room. People are told once in the day or month of the cap.
        """
        if not routine.run.asks_model:
            return None
        config = self._settings.config
        provider = routine.run.provider or config.provider
        if provider not in config.provider_names:
            return None  # the config names it no more; the run says so
        if config.provider_config(provider).kind == "offline":
            return None
        run_budget = RunBudget(run="", routine=routine.name, budget=routine.run.budget)
        if not self.has_caps(run_budget):
            return None
        known_rates = await self.prices.load(provider, routine.run.model)
        # as `reserve` will judge the run's first call, whose input is not known yet
        configured_max = routine.run.max_tokens or config.provider_config(provider).max_tokens
        max_answer = configured_max or DEFAULT_ANSWER
        for cap in await self._caps_of_periods(run_budget):
            if cap.is_money and known_rates is None:
                is_used_up = cap.remaining <= 0
            else:
                room = cap.answer_room(0, known_rates, ignore_reservations=True)
                is_used_up = room < min(max_answer, cap.min_answer)
            if is_used_up:
                consequence = "What comes due until it begins anew is skipped as `budget`"
                await self._warn_people(cap, 100, f"{cap.key} is used up", consequence)
                return cap.describe()
        return None

    async def list_caps(self, routines: Iterable[Routine]) -> list[tuple[str | None, Cap]]:
        """Return (routine, cap) for each cap on a day or month: first those of config.toml, whose
        routine is None, then those of routines.
        """
        shared_caps = await self._caps_of_periods(RunBudget(run="", routine="", budget=Budget()))
        caps: list[tuple[str | None, Cap]] = [(None, cap) for cap in shared_caps]
        for routine in routines:
            run_budget = RunBudget(run="", routine=routine.name, budget=routine.run.budget)
            if run_budget.budget.day is not None or run_budget.budget.month is not None:
                own_and_shared = await self._caps_of_periods(run_budget)
                own_caps = own_and_shared[: len(own_and_shared) - len(shared_caps)]
                caps += [(routine.name, cap) for cap in own_caps]
        return caps

    async def caps(self, run_budget: RunBudget) -> list[Cap]:
        """Return every cap on a call paid from `run_budget`: on days and months, then on runs."""
        caps = await self._caps_of_periods(run_budget)
        for payer in run_budget.chain():
            if payer.budget.usd is None and payer.budget.tokens is None:
                continue
            async with self._load_lock:
                if payer.total is None:
                    # Set before the await, so that what is spent meanwhile is added to it.
                    total = payer.total = RunningTotal()
                    try:
                        cost, tokens = await self.spending.get_total_of_run(payer.run)
                    except BaseException:
                        payer.total = None
                        raise
                    total.cost, total.tokens = total.cost + cost, total.tokens + tokens
            if payer.budget.usd is not None:
                caps.append(
                    Cap(
                        key="[run.budget] usd",
                        period="run",
                        limit=round(payer.budget.usd * NANO),
                        total=payer.total,
                        is_money=True,
                    )
                )
            if (limit := payer.budget.tokens) is not None:
                caps.append(
                    Cap(
                        key="[run.budget] tokens",
                        period="run",
                        limit=limit,
                        total=payer.total,
                        is_money=False,
                        min_answer=MIN_ANSWER_OF_RUN,
                        tokens=limit,
                    )
                )
        return caps

    async def _caps_of_periods(self, run_budget: RunBudget) -> list[Cap]:
        local_time = self.clock.now().astimezone(self._settings.zone)
        dates: dict[CapPeriod, _Date] = {
            "day": (local_time.year, local_time.month, local_time.day),
            "month": (local_time.year, local_time.month),
        }
        limits, own_limits, routine = self._budget, run_budget.budget, run_budget.routine
        dollar_limits: tuple[tuple[str, CapPeriod, str, float | None], ...] = (
            ("[run.budget] day", "day", routine, own_limits.day),
            ("[run.budget] month", "month", routine, own_limits.month),
            ("[budget] day", "day", "", limits.day),
            ("[budget] month", "month", "", limits.month),
        )
        token_limits: tuple[tuple[str, CapPeriod, int | None], ...] = (
            ("[budget] day_tokens", "day", limits.day_tokens),
            ("[budget] month_tokens", "month", limits.month_tokens),
        )
        caps = []
        for key, period, owner, dollars in dollar_limits:
            if dollars is not None:
                total, start = await self._total(dates[period], owner)
                caps.append(
                    Cap(
                        key=key,
                        period=period,
                        limit=round(dollars * NANO),
                        total=total,
                        is_money=True,
                        start=start,
                        routine=owner,
                    )
                )
        for key, period, tokens in token_limits:
            if tokens is not None:
                total, start = await self._total(dates[period], "")
                caps.append(
                    Cap(
                        key=key,
                        period=period,
                        limit=tokens,
                        total=total,
                        is_money=False,
                        start=start,
                    )
                )
        return caps

    async def _total(self, date: _Date, routine: str) -> tuple[RunningTotal, datetime]:
        """Return (total, start) of a day or month; `routine` is empty for all routines."""
        year, month, day = (*date, 1)[:3]
        start = datetime(year, month, day, tzinfo=self._settings.zone)
        if self._is_shared:
            cost, tokens, reserved_cost, reserved_tokens = await self.spending.get_totals(
                start, routine
            )
            total = RunningTotal(
                cost=cost,
                tokens=tokens,
                reserved_cost=reserved_cost,
                reserved_tokens=reserved_tokens,
            )
            return total, start
        async with self._load_lock:
            if total_in_memory := self._totals.get((date, routine)):
                return total_in_memory, start
            # Totals of earlier months are dropped here. The new one is set before the await, so
            # that what is spent meanwhile is added to it.
            totals = {key: total for key, total in self._totals.items() if key[0][:2] == date[:2]}
            total = totals[date, routine] = RunningTotal()
            self._totals = totals
            try:
                totals_by_routine = await self.spending.get_totals_by_routine(start)
            except BaseException:
                del totals[date, routine]
                raise
            for spender, (cost, tokens) in totals_by_routine.items():
                if routine in ("", spender):
                    total.cost += cost
                    total.tokens += tokens
            return total, start


def price_checks(config: Config) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return further checks for `load_folder`: where a cap is on dollars, every model that a run
    may ask needs a price.
    """
    prices = Prices(config)

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        run, limits = routine.run, config.budget
        own_keys = [
            f"run.budget.{key}"
            for key in ("usd", "day", "month")
            if getattr(run.budget, key) is not None
        ]
        keys = own_keys + [
            f"budget.{key} of config.toml"
            for key in ("day", "month")
            if getattr(limits, key) is not None
        ]
        if not keys:
            return
        models: list[tuple[str, str | None]] = []
        if run.asks_model:
            models = [(run.provider or config.provider, run.model)]
            models += [(name, None) for name in run.fallback]
        if routine.check and routine.check.judge:
            models.append(routine.check.judge.provider_of(run, config.provider))
        for name, model in dict.fromkeys(models):
            if name in config.provider_names and prices.get(name, model) is None:
                model = model or config.provider_config(name).model
                problem = f"no price is known for {model or 'the model'} of provider {name}"
                hint = (
                    f"give it in config.toml, like providers.{name}.price = {{ input = 3.0, output "
                    "= 15.0 } (dollars per million tokens; 0 for one of your own), or cap tokens "
                    "only"
                )
                yield Conflict(
                    keys[0] if own_keys else "run.budget",
                    f"{problem}, and {keys[0]} caps dollars",
                    hint=hint,
                )

    reads = ("run.budget", "run.provider", "run.model", "run.fallback", "check.judge")
    return (CrossFieldCheck(reads, check),)
