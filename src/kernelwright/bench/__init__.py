"""Room bench: how fast is a candidate? Timing, statistics, floors, the `Measurement` of it all."""
