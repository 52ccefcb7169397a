"""Read what broker and clients prove their identity with: private keys, certificates, and the options of TLS.

It has no sockets and no settings tables: broker and client name the settings in their errors.
"""
