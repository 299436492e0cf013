"""May this call run? policy.toml says so: deny > ask > allow, and what it does not name is denied.

policy.py is the policy in force, policy_file.py the file as a value, requests.py finds out what a
call would do, verdicts.py gives each part of it a verdict. authoring/ helps the person who writes
the file. Not here: how a call is run (tools/, sandbox/).
"""
