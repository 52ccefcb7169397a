"""What bytes mean: messages, record batches, errors. Sans-I/O: no sockets, files, clocks, tasks; imports nothing of
ours."""
