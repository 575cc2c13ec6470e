"""At the coordinator: a socket where it connects, and a parcel on its way to each site."""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from blindsight.fleet.carriers.flower_relay import relay

GIVE_UP_S = 300.0
"""A visit that has not come back by then is taken for lost, and the site is visited again."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry until Flower ends the run."""
    socket = Path(str(context.run_config["socket"]))
    threading.Thread(target=end_with_parent, args=(os.getppid(), socket), daemon=True).start()
    pairs = [pair.strip().split("=") for pair in str(context.run_config["nodes"]).split(",")]
    nodes = {site: int(node) for site, node in pairs}
    courier = FlowerCourier(grid, nodes)
    relay(socket, sorted(nodes), courier, is_over=lambda: False)


def end_with_parent(parent: int, socket: Path) -> None:
    """End when Flower, the parent of this process, was killed: calls of a SuperLink that is gone never end."""
    while os.getppid() == parent:
        time.sleep(1)
    socket.unlink(missing_ok=True)
    os._exit(1)


class FlowerCourier:
    """Parcels as Flower's messages to the SuperNodes that were registered for the sites."""

    def __init__(self, grid: Grid, nodes: Mapping[str, int]) -> None:
        self._grid, self._nodes = grid, nodes
        self._under_way: dict[str, tuple[str, float]] = {}  # by Flower's id of the message
        self._failed: list[str] = []

    def take(self, site: str, parcel: bytes) -> None:
        """Send a parcel on its way to a site."""
        content = RecordDict({"parcel": ConfigRecord({"data": parcel})})
        message = Message(content, dst_node_id=self._nodes[site], message_type="query.parcel", ttl=GIVE_UP_S)
        ids = [one for one in self._grid.push_messages([message]) if one]
        if ids:
            self._under_way[ids[0]] = site, time.monotonic()
        else:
            self._failed.append(site)

    def back(self) -> dict[str, bytes]:
        """The parcels returned since the last call."""
        found = dict.fromkeys(self._failed, b"")
        self._failed = []
        if self._under_way:
            for reply in self._grid.pull_messages(list(self._under_way)):
                site, _ = self._under_way.pop(reply.metadata.reply_to_message_id, ("", 0.0))
                if site:
                    found[site] = b"" if reply.has_error() else bytes(reply.content["parcel"]["data"])
        for number, (site, since) in list(self._under_way.items()):
            if time.monotonic() - since > GIVE_UP_S:
                del self._under_way[number]
                found[site] = b""
        return found
