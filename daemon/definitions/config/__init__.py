"""The daemon's own settings: config.toml as a value.

tables.py has one model for each table of the file, config.py all of them together, rules.py what
must hold between keys, secret_files.py the secrets in files of their own, loading.py the file read
with what agents wrote above it.
"""
