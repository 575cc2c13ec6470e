"""A site's own side: settings, policy, the book of questions and decisions, and the diary of everything it did.

::

    settings     SITE.toml
    credentials  the certificate, the authority and the roster that SITE.toml names
    policy       what is asked, and whether a site answers: a pure function
    book         questions, decisions and payments on disk; the ledger beside it
    diary        everything that happened, in plain words, as a hash chain

Nothing here reads the site's data.
"""

__all__: list[str] = []
