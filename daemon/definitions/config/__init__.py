"""The daemon's own settings: config.toml as a value.

tables.py has one model for each table of the file, config.py puts them together, checks.py checks
keys against each other, secret_files.py reads secrets from files of their own, loading.py reads the
file, with the settings of agents and those of the environment (environment.py) applied to it.
restart.py knows which changes a reload does not apply.
"""
