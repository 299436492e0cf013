"""The daemon's own settings: config.toml as a value.

tables.py      one model for each table of the file
config.py      all of them together, and the secrets they name
keys.py        secrets that lie in files of their own
rules.py       what must hold between keys
loading.py     the file read, with what agents wrote above it
"""

from daemon.config.config import Config
from daemon.config.loading import load_config
from daemon.config.tables import (
    CHANNELS,
    KINDS,
    BudgetConfig,
    DaemonConfig,
    DigestConfig,
    Dollars,
    McpConfig,
    Name,
    PriceConfig,
    ProviderConfig,
    TargetConfig,
    Zone,
    is_settable,
)

__all__ = [
    "CHANNELS",
    "KINDS",
    "BudgetConfig",
    "Config",
    "DaemonConfig",
    "DigestConfig",
    "Dollars",
    "McpConfig",
    "Name",
    "PriceConfig",
    "ProviderConfig",
    "TargetConfig",
    "Zone",
    "is_settable",
    "load_config",
]
