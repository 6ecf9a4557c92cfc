"""The routers: one module a kind, named as in `router: {kind: …}`; `batchsim.router` says what they are."""
