"""From a clip of a motion to a policy that makes a humanoid do it."""

import os

# Read when torch is first imported, by whatever module that is, so they are set before any of ours is.
# A torch_npu without CANN kills `import torch` through torch's back-end entry points; learn/device.py imports torch_npu
# itself where an NPU is wanted.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# Threads that wait for each other spin for some microseconds, then sleep (libgomp's count). Without a limit, an update
# took 15 s instead of 0.4 s on two cores where anything else ran; sleeping at once makes it 1.8 times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
