"""For the person who writes the policy: what is worth a second look, and what would another policy
have said?

recorded_calls.py reads the calls of earlier runs from the journal, compare.py judges them by two
policies, suggest.py makes the narrowest section they would have fitted into, suggest_rules.py the
smallest rules for what an observed routine was denied, policy_text.py puts those or a trial into
the text of policy.toml, unknown_routines.py names what fits no routine. Nothing here
changes a file or runs a call. The commands are in app/commands/policy.py and observe.py.
"""
