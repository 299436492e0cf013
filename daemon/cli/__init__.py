"""agentctl: the client of the API. It imports the standard library only, and little of that.

main.py turns a command line into a call of a verb; verbs.py is the table of verbs, each with the
module that implements it, named after the feature; client.py is the only client of the socket;
render.py makes text for people.

Not here: what agentd does without a daemon (app/commands/, started by agentd_commands.py).
"""
