"""At a site: each message of Flower's is one visit to the socket of the site's agent.

A SuperNode is started with --node-config 'socket="/path/to/flower.sock"'.
"""

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from blindsight.fleet.carriers.flower_relay import hand_over

app = ClientApp()


@app.query("parcel")
def visit(message: Message, context: Context) -> Message:
    """Bring the agent a parcel, and take one back; an error says nothing but that there was one."""
    try:
        answer = hand_over(str(context.node_config["socket"]), message.content["parcel"]["data"])
    except Exception:  # Flower would send its text to the coordinator
        answer = b""
    return Message(RecordDict({"parcel": ConfigRecord({"data": answer})}), reply_to=message)
