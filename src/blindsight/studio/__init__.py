"""The studio: local pages over runs, ledgers, questions, labels and fleets. Does not import JAX.

::

    studio_app   all pages of `blindsight studio`, behind the gate
    gate         who may use it: one browser, for a token that is good once
    web          what its pages share
    listing      the runs in a folder, read again only when they change
    details      one run: settings, curves, files; notes: what people write about it; locks: whether it is running
    comparing    two runs side by side
    fleet_runs   runs that ask a fleet, and what its sites said
    composing    a question as a form, its command and its dry run; asked: questions under way
    run_pages, compare_pages, ledger_pages, question_pages,
    label_pages, fleet_pages
                 the pages
    serving      runs the studio; sockets: what it shares with the label queue
    labels       decisions about a synthetic set, one line each, on disk before the next example is shown
    queue        what a rater still has to label, in the rater's own order, and the keys of the classes
    agreeing     agreement of raters, and majority labels
    annotations  import from and export to Label Studio
    app          the page with the queue alone, as `blindsight label` serves it
    run          serves it
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
