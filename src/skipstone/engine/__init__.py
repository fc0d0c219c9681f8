"""Where work runs: a function mapped over tasks, by threads of this process or by Spark."""
