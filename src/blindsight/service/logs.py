"""What the service writes to standard error: lines for people, or one JSON object per line for machines.

Messages hold no address, body, ticket or token (`app`), in either form.
"""

import datetime
import json
import logging
import sys
from typing import Any

__all__ = ["JsonLines", "write_logs"]


class JsonLines(logging.Formatter):
    """One JSON object per record: time in UTC, level, logger and message; the type of an exception, never its text."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = record.exc_info[0].__name__
        return json.dumps(fields, ensure_ascii=False)


def write_logs(form: str) -> None:
    """Write the log to standard error as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
