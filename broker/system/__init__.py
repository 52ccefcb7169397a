"""What the broker uses of the operating system: files, descriptors, clocks, threads and random ids, behind ports."""
