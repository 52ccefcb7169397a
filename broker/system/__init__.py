"""What the broker uses of the operating system: files, descriptors, clocks, threads and random ids.

The interfaces are in `ports.py`, so that tests can replace the operating system.
"""
