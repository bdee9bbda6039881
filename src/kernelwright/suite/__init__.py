"""Room suite: a whole folder of problems through the pipeline, whatever happens on the way.

    problems --> Task --> pool: one child process for each problem --> Outcome --> journal

The journal is the only memory: what it says is done is never done again, everything else is.
"""
