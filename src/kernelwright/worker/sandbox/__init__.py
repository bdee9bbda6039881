"""The sandbox: what a process that runs untrusted code may touch."""
