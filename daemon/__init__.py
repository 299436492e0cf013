"""Run LLM agents on a schedule.

The rooms, in the order a run walks through them:

crontab.py      when a schedule fires, as values: parse, next, prev
schedule.py     cron, every, at, on_start as one thing with `next` and `prev`
phrases.py      schedules in plain words
definitions/    read TOML strictly: all faults at once, each with its place
config/         config.toml as a value
routines/       one routine file as a value; what changed between two folders of them
watching/       files that come to rest in watched folders
due.py          what becomes of a slot, decided from values
why.py          why a slot ran or did not, in one sentence
almanac.py      when a routine runs; needs.py which machines have what a run needs
ledger.py       slots settled and claimed in the journal, each once
occasions.py    what else starts a run: a person, a file, a webhook, the end of another
hindrances.py   what keeps a slot from starting
patience.py     routines that keep failing; outages.py models that do not answer; shortage.py a full disk
arrivals.py     files and ends heard of, answered when there is time
engine.py       APScheduler rings when a routine is due, the ledger settles its slots
executors.py    who lives which run, and how many at once
run.py          the life of a run on one screen
host.py         what runs find around themselves; chain.py the models they ask, in order
talk/           people who speak to the agent: ask, tell, conversations
delegation.py   runs that runs begin
replay/         recorded runs played again, and held against the record; replays.py for whoever asks the daemon
encore.py       the same without a daemon
rehearsals.py   routines tried before they are trusted: intercept.py tells what they would do, rehearsed.py who approved
gather.py       facts collected before the first model call, and what changed in them; pictures.py what it is shown
agent/          prompt, loop, transcript: from a goal to a reply
providers/      one file per model vendor behind one port
money/          prices, caps, and a meter before every call
functions/      registry, executor and discovery of what a model may call
skills/         guides that agents read when they need them
tools/          the functions that ship with us
mcp/            tools of other servers
policy/         may this call run? deny > ask > allow
sandbox/        how a program of a tool runs: confined, limited, and gone when it is over
injection/      does what a tool brought back give orders?
memory/         what earlier runs left behind, found again
delivery/       the outbox: reports on their way to their targets
store/          the journal: one SQLite file, one writer
control/        the socket, its routes, and the client that talks to it
novelty.py      which items of a run no earlier one has reported
archive.py      what of a run is worth remembering; recollection.py memory as the config wants it
events.py       what is happening in runs right now, for whoever watches
log.py          structured logs; journald.py the same with fields, for systemd
redact.py       secrets taken out of whatever is kept or shown
clock.py timer.py bell.py errands.py notify.py   time, its jumps, changed folders, work that waits, a word to systemd
forecast.py     what the coming days will take
traces/         what runs did, for OpenTelemetry
metrics.py      what is counted and measured, as Prometheus text
digest.py       the ledger in a line, by day or week
upkeep.py       the journal looked through, old history let go
backup.py transfer.py unit.py   what is known, out into a file and back in; the systemd unit, installed
drafting/       for the person who writes the policy
rename.py       another name for a routine, its history going along
new.py          a routine file, written for a person
offspring.py    routines that agents made; overlay.py settings that they wrote
webhooks.py     the door for strangers, opened when a routine wants one
app.py          everything wired by hand
life.py         the life of the process
banner.py offer.py   what a person reads and is asked at the start
main.py         the command `agentd`
http_client.py  how HTTP clients connect; http_body.py http_limit.py how much of an answer is read
models.py       the words of the product as values
errors.py       the ways things go wrong, named by what happens next
"""

__version__ = "0.1.0"
