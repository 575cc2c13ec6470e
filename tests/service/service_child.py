"""A service in a process of its own.

`python service_child.py ADDRESS_OF_REDIS|memory FOLDER PORT TASK.json '{"setting": 1}'`
"""

import json
import logging
import sys
from pathlib import Path

from blindsight.service import Settings, serve

if __name__ == "__main__":
    store, folder, port, task, more = sys.argv[1:]
    logging.basicConfig(level=logging.INFO)
    serve(
        Settings(
            store=store,
            data=Path(folder),
            port=int(port),
            tasks=(Path(task),),
            rate_per_s=0.0,
            shed_s=1e6,
            share_port=store != "memory",
            **({"snapshot_s": 0.2} | json.loads(more)),
        )
    )
