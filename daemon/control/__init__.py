"""The control socket, its routes, and the client that talks to it.

The daemon's half:
door.py     the socket's file; server.py uvicorn in our loop, and who may speak to it
routes.py   the API as a table; surface.py says what it needs, views.py how its answers look
binding.py  what a request must carry, read off a route's own signature; openapi.py tells the world
problems.py every error as application/problem+json
sse.py      what happens in a run, once each, from its first event to its last

The client's half, which imports the standard library only, and little of that:
cli.py      from a command line to a verb; verbs.py the table of them: options, and the module where each is done
client.py   a socket and JSON; call.py one call of agentctl
render.py   text for people; progress.py a live run, inspection.py a past one, logs.py the log

Not here: what a verb of the API does. Routes ask the engine, the journal and the executor, and decide nothing.
"""
