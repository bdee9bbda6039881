"""The clock: what opens a gate on the device, takes times, and keeps what was timed."""
