"""Whatever happens to a daemon, its promises hold: for as long as one likes.

    python -m tests.chaos --minutes 60              all parts, and a table of what was broken
    python -m tests.chaos --minutes 10 --only disk  one of them

Each part starts real daemons on a folder of its own, does to them what its name says, and counts at
the end from the journal, the vendor's log and the effects of tools (storm.py):

    lost         a slot that the ledger does not account for, an effect that a result speaks of, a
                 report of a run that no delivery stands for
    twice        a slot or an effect that is there twice
    stuck        a run or a delivery that does not end once the faults are over
    asked again  a question to a model whose answer was recorded
    silent       a failure, an end of the process or damage that nobody was told of
"""
