"""For the person who writes the policy: what is worth a second look, and what would another policy
have said?

recorded_calls.py reads the calls of earlier runs from the journal, compare.py judges them by two
policies, suggest.py writes the narrowest section they would have fitted into, notes.py says what is
sound and still worth a second look. Nothing here changes a file or runs a call. The commands are in
app/commands/policy.py.
"""
