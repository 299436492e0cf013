"""The HTTP API over the Unix socket, and the webhooks on a socket of their own.

routes.py is the API as a table, with a file for each feature; context.py says what routes need of
the daemon, schemas.py how answers look, binding.py what a request must carry, and openapi.py
describes all of these. listener.py makes the socket's file, embedded_uvicorn.py runs uvicorn in the
event loop of the daemon, events.py sends what happens in runs.

Not here: what a request does. Routes ask the scheduler, the journal and the runs, and decide
nothing.
"""
