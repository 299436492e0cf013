"""People talk to the daemon in a chat: they read reports there, answer them, ask, give commands
and approve calls.

base.py is what a chat's service has to do, with an adapter for each service: telegram.py.
inbound.py takes what people send, channel.py brings them reports, answers and questions, and
live_answers.py shows an answer while it is written.
"""
