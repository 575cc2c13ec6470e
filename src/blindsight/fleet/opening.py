"""Before a job's first sum: every site decides, gets the public inputs that it lacks, and says when it is ready."""

import datetime
import time
from collections.abc import Callable, Mapping

from blindsight.errors import BlindsightError, InvalidInput, Unanswered
from blindsight.fleet import wire
from blindsight.fleet.codes import code_said
from blindsight.fleet.job import LARGEST_INPUT, Job
from blindsight.fleet.sites import Answer, Sites

__all__ = ["open_job"]

_AGAIN_S = 2.0
_READY = ("approved",)
_UNDECIDED = ("silent", "pending", "deciding")


def open_job(
    sites: Sites,
    job: Job,
    inputs: Mapping[str, bytes],
    *,
    wait_s: float,
    progress: Callable[[str], None] = lambda words: None,
    heard: Callable[[Mapping[str, str]], None] = lambda state: None,
) -> dict[str, str]:
    """Ask every site to take the job, until enough have approved; returns the code of each that has not.

    Sites that refuse, or stay silent, are out; those where a person decides are waited for up to `wait_s` seconds.
    Raises `Unanswered` if too few have approved until then, and enough may yet.

    Args:
        sites: The lines to the sites.
        job: The job.
        inputs: Public inputs by name, for sites that lack them.
        wait_s: How long to wait for sites that decide by hand.
        progress: Called with what is being waited for.
        heard: Called with what every site has said whenever one says something new.
    """
    for name, data in inputs.items():
        if len(data) > LARGEST_INPUT:
            raise InvalidInput(
                f"the {name} has {len(data):,} bytes, and sites accept {LARGEST_INPUT:,}: send a smaller one"
            )
    state, until = dict.fromkeys(sites.names, "silent"), time.monotonic() + wait_s
    begun, asked = time.monotonic(), dict.fromkeys(sites.names, 0.0)
    heard(dict(state))
    while True:
        undecided = [site for site, code in state.items() if code in _UNDECIDED]
        now = time.monotonic()
        for site in undecided:
            if now - asked[site] > (sites.patience.silence_s if state[site] == "deciding" else _AGAIN_S):
                sites.send(site, wire.encode({"kind": "job", "job": job.to_dict(), "sent_at": _now()}))
                asked[site] = now
        answer = sites.listen(0.2)
        if answer is not None and answer.head.get("id") == job.digest:
            before = dict(state)
            _hear(sites, job, inputs, answer, state)
            if state != before:
                heard(dict(state))
        is_settled = not any(code in _UNDECIDED for code in state.values())
        is_late = now - begun > sites.patience.silence_s and not {"pending", "deciding"} & {*state.values()}
        if is_settled or is_late or now > until:
            break
        pending = [site for site, code in state.items() if code == "pending"]
        progress(f"waiting for approval at {', '.join(pending)}" if pending else "asking the sites")
    silent = [site for site, code in state.items() if code == "silent"]
    state |= {site: sites.why_silent(site) for site in silent}
    heard(dict(state))
    ready = [site for site, code in state.items() if code == "approved"]
    if len(ready) < job.fewest:
        raise _too_few(job, state)
    sites.give_up(silent)
    return {site: code for site, code in state.items() if code != "approved"}


def _too_few(job: Job, state: Mapping[str, str]) -> BlindsightError:
    """Why the job cannot begin: it waits for sites, if enough of them can still take part."""
    ready, may = (sum(code in codes for code in state.values()) for codes in (_READY, (*_READY, *_UNDECIDED)))
    named = ", ".join(f"{site}: {code}" for site, code in state.items() if code not in _READY)
    facts = f"{ready} of {len(state)} sites take part, {job.fewest} are needed ({named})"
    if may < job.fewest:
        return BlindsightError(f"{facts}: blindsight fleet status says what a code means, and the site's log why")
    return Unanswered(
        f"{facts}: approve what is pending at its site with blindsight site review, then run the same command again"
    )


def _hear(sites: Sites, job: Job, inputs: Mapping[str, bytes], answer: Answer, state: dict[str, str]) -> None:
    """Take in a site's decision; send it the public inputs that it lacks."""
    if answer.kind != "job" or answer.site not in state:
        return
    said = str(answer.head.get("state"))
    if said == "refused":
        state[answer.site] = code_said(answer.head)
    elif said == "pending" or (
        said == "deciding" and state[answer.site] in _UNDECIDED
    ):  # asked twice, it says it twice
        state[answer.site] = said
    elif said == "lacking":
        needs = answer.head.get("needs")
        for name in (one for one in job.inputs if isinstance(needs, list) and one in needs):
            head = {"kind": "input", "id": job.digest, "name": name, "sent_at": _now()}
            sites.send(answer.site, wire.encode(head, [inputs[name]]))
    elif said == "approved":
        state[answer.site] = "approved"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
