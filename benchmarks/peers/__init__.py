"""Side by side in one run: q1pipe and its peers on the same work, each in a process and a Python of its own."""
