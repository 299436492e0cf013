"""People who speak to the agent: `ask` and `tell`, conversations that go on, and which run a message belongs to.

What a run does with a message is the agent's; how it reaches a terminal is control's.
"""

from daemon.talk.inbox import Inbox
from daemon.talk.sessions import Past
from daemon.talk.talk import ASK, Said, Talk, routine_of

__all__ = ["ASK", "Inbox", "Past", "Said", "Talk", "routine_of"]
