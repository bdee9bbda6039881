"""The parts of benchmarks/matmul.py: cases, building, timing, accuracy, and who runs what.

A result file is one JSON object:

    part, provenance, build_seconds
    summary    what the measured rows come to, "cases" and "failed" (names)
    rows       one object for each case

and a row has

    case, status           "measured", "failed" (then "message" says why) or "not run"
    seconds                wall time of the case
    kernels, left_to_pytorch
    library_ms, ours_ms    medians between the events around a call; ratio; samples; interval (95 %)
    library_host_ms, ours_host_ms    from the call to the end of its work, idle device, warm L2
    tflops, library_tflops
    required, stretch, met, stretch_met
    accuracy               by distribution: {"ours": errors, "library": errors, "nonfinite",
                           "runs_agree", "broken"}; errors are {"max", "rms", "mean", "misplaced"}
    broken                 "distribution: clause" for each clause of the rule that ours breaks

as far as the part measures it. kernelbench_matmul.py writes provenance, summary and rows; its rows
have "level", "ms" by contestant, "lost" (baselines without times, and why), "best", "ratio" and
"interval" over the best, and the status "wrong" with "reasons" where a file fails verification.
"""
