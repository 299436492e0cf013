"""Money: what a call to a model may cost, what it did cost, and when there is no more to spend.

In this room: prices, the caps of config.toml and of routines, and the meter through which every call goes. Not in this
room: the rows (store/spending.py), what a run says when it is stopped (agent/loop.py), and any change to a vendor's
account.
"""

from daemon.money.meter import Meter
from daemon.money.prices import Prices, Rates
from daemon.money.purse import Account, Purse, priced

__all__ = ["Account", "Meter", "Prices", "Purse", "Rates", "priced"]
