"""One ServerApp and one ClientApp that carry Blindsight's messages, and know nothing of what is in them."""

import os

if os.environ.get("FLWR_TELEMETRY_ENABLED") != "0":
    raise RuntimeError("Flower's telemetry is on: start its processes with the settings of flower.env")
