"""The schedulers, one module a kind; `batchsim.scheduler` is their contract."""
