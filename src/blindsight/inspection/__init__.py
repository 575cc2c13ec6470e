"""Inspection: what is wrong with data that nobody may look at, asked and answered in one private round.

::

    measuring    one round over all clients, every part noised, paid for before any noise is drawn
    cues         named bounded statistics, one block for each arm
    diagnosis    clients undo faults on their own failures and vote for the one that repairs them
    findings     effect, interval, verdict, and what could not have been seen
    power        what a population of that size could show, before anything is spent
    report       everything on one page

Nothing is imported before it is used: a report is read without JAX.
"""
