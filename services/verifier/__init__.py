"""The verifier shard: runs its layers over the rows of many sessions; the last shard decides what is accepted."""
