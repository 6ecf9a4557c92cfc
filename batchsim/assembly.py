"""The parts of a run put together: replicas, what stands before them, and the clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Environment

from batchsim.cluster import Clients, Server, Share
from batchsim.engine import Engine
from batchsim.express import Lane, LaneAhead
from batchsim.feed import in_order
from batchsim.fleet import Fleet, Later
from batchsim.handoff import Handoff, Terms
from batchsim.kv.blocks import BlockPool
from batchsim.kv.content import Contents
from batchsim.kv.handed import KeepingCache, KeepingPool, LandingCache, LandingPool
from batchsim.kv.own import OwnBlocks
from batchsim.kv.prefix import PrefixCache
from batchsim.landing import Pulling, Side
from batchsim.recorder import Recorder
from batchsim.records import Pool
from batchsim.replica import Replica
from batchsim.request import Request
from batchsim.rng import stream
from batchsim.router import Outlook, Router
from batchsim.router import attribute as router_attribute
from batchsim.scenario.resolve import Part, Resolved
from batchsim.scheduler import Scheduler, attribute
from batchsim.workload.columns import ABSENT, Int64, Workload

NS_PER_MS = 1_000_000
NS_PER_US = 1_000

Pools = dict[str, tuple[type[BlockPool], type[PrefixCache]]]
POOLS: Pools = {
    "serve": (BlockPool, PrefixCache),  # the latter perhaps in its short form: `cache`
    "prefill": (KeepingPool, KeepingCache),
    "decode": (LandingPool, LandingCache),
}
"""By role: without and with prefix caching."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything that moves in a run. `server`: what stands before the replicas, None before single ones.

    worlds: SimPy environments that know nothing of each other, with the clients of each.
    """

    worlds: list[tuple[Environment, Clients]]
    replicas: list[Replica]
    server: Fleet | Handoff | None

    def stuck(self) -> str | None:
        """What stands still, when nothing more will happen."""
        found = (replica.stuck() for replica in self.replicas)
        own = None if self.server is None else self.server.stuck()
        return next((text for text in found if text is not None), own)

    def close(self, now_ns: int) -> None:
        """Write the rows of those still here."""
        for replica in self.replicas:
            replica.close(now_ns)
        if self.server is not None:
            self.server.close(now_ns)


def assemble(resolved: Resolved, workload: Workload, recorder: Recorder, *, stepwise: bool) -> Assembly:
    """The parts of a run, ready to start."""
    build = _Build(resolved, workload, recorder, stepwise)
    if resolved.scenario.disaggregation is not None:
        return build.handoff()
    if resolved.replicas == 1 and not router_attribute(resolved.scenario.router, "central", False):
        return build.single()
    return build.apart() or build.fleet()


def pools(parts: tuple[Part, ...], replicas: list[Replica]) -> tuple[Pool, ...]:
    """The groups of replicas of a run, as its records name them."""
    found: list[Pool] = []
    for part in parts:
        first = found[-1].numbers.stop if found else 0
        memory = replicas[first].batch.pool
        found.append(
            Pool(
                name=part.name,
                role=part.role,
                first=first,
                replicas=part.replicas,
                gpus_per_replica=part.gpus_per_replica,
                gpu=part.scenario.gpu.name,
                kv_blocks=memory.total,
                block_size=memory.size,
            )
        )
    return tuple(found)


def cache(scheduler: Scheduler, blocks: int, block_size: int, contents: Contents) -> BlockPool:
    """vLLM's prefix cache, in its short form where the workload shares nothing."""
    if contents.shared or attribute(scheduler, "evicts_served", True):
        return PrefixCache(blocks, block_size, contents)
    return OwnBlocks(blocks, block_size)


def clients_listen(workload: Workload) -> bool:
    """Whether what clients send depends on the answers that they get, or on getting none."""
    gives_up = bool((workload.cancel_ns != ABSENT).any())
    waits = workload.clients is not None or workload.max_concurrency is not None or workload.after is not None
    return waits or gives_up


class FrontDoor:
    """Says why a request could never be served, whatever the scheduler, naming both numbers; None if it could."""

    def __init__(self, resolved: Resolved) -> None:
        finals = [part.capacity for part in resolved.parts if part.role != "prefill"]
        roomiest = max(finals, key=lambda capacity: capacity.tokens)
        self._blocks, self._size, self._longest = roomiest.blocks, roomiest.block_size, resolved.max_model_len
        self._first = next((part.capacity for part in resolved.parts if part.role == "prefill"), None)

    def __call__(self, request: Request) -> str | None:
        prompt = request.prompt_tokens
        output = request.max_tokens if request.declared else request.wanted_tokens
        if prompt + output > self._longest:
            return f"prompt and output of {prompt + output} tokens exceed max_model_len {self._longest}"
        need = self._need(prompt, output)
        if need > self._blocks:
            return f"needs {need} KV blocks, the cache has {self._blocks}"
        first = self._first
        if first is not None and -(-prompt // first.block_size) > first.blocks:
            return f"the prompt needs {-(-prompt // first.block_size)} KV blocks, the prefill side has {first.blocks}"
        return None

    def lets_in(self, prompt: Int64, output: Int64) -> NDArray[np.bool_]:
        """Which requests it lets in, where nobody prefills elsewhere. output: the declared limit, else what it wants."""
        fits: NDArray[np.bool_] = prompt + output <= self._longest
        enough: NDArray[np.bool_] = self._need(prompt, output) <= self._blocks
        return fits & enough

    def _need(self, prompt: Any, output: Any) -> Any:
        """KV blocks at the last token, of one request or of columns."""
        return -(-(prompt + output - 1) // self._size)


class _Build:
    def __init__(self, resolved: Resolved, workload: Workload, recorder: Recorder, stepwise: bool) -> None:
        self._env = Environment(0)
        self._resolved, self._workload, self._recorder = resolved, workload, recorder
        self._stepwise = stepwise
        self._listen = stepwise or recorder.steps is not None or clients_listen(workload)
        self._contents = Contents(workload.prefixes)
        self._door = FrontDoor(resolved)

    def single(self) -> Assembly:
        """One replica, and nothing before it."""
        world, replica = self._alone(0, self._resolved.parts[0], None)
        return Assembly([world], [replica], None)

    def apart(self) -> Assembly | None:
        """A fleet behind a router that looks at nothing, whose clients hear nothing: as many single replicas."""
        router, part = self._resolved.scenario.router, self._resolved.parts[0]
        blind = hasattr(router, "spread") and not router_attribute(router, "retry", 0)
        if self._listen or not blind or len(self._resolved.parts) > 1:
            return None
        shares = self._shares(self._router(router, part.replicas, "arrivals"), part.replicas)
        made = [self._alone(number, part, share) for number, share in enumerate(shares)]
        return Assembly([world for world, _ in made], [replica for _, replica in made], None)

    def _shares(self, router: Router, replicas: int) -> list[Share]:
        """What goes to each replica; those that are rejected at the door are sent to the first."""
        workload = self._workload
        order = in_order(workload)
        places = np.arange(len(workload)) if order is None else order
        declared = workload.max_tokens[places]
        output = np.where(declared == ABSENT, workload.output_tokens[places], declared)
        due = self._door.lets_in(workload.prompt_tokens[places], output)
        sent = workload.arrival_ns[places]
        if self._resolved.horizon_ns is not None:
            within = sent < self._resolved.horizon_ns
            due, sent = due & within, sent[within]
        to = np.zeros(len(places), dtype=np.int64)
        to[due] = router.spread(int(due.sum()))  # type: ignore[attr-defined]
        until_ns = int(sent.max(initial=0))
        return [Share(places[to == number], until_ns) for number in range(replicas)]

    def _alone(self, number: int, part: Part, share: Share | None) -> tuple[tuple[Environment, Clients], Replica]:
        """A replica in a world of its own."""
        self._env = Environment(0)
        alone = not self._listen
        replica = self._replica(number, part, part.scheduler(), self._recorder, single=True, alone=alone)
        clients = self._clients([replica], lambda request: replica, share)
        if alone:
            replica.lane = self._lane(replica, clients)
        else:
            replica.engine.on_done = clients.done
        return (self._env, clients), replica

    def _lane(self, replica: Replica, clients: Clients) -> Lane | LaneAhead | None:
        """The replica's express lane, if its scheduler offers one and its memory only counts."""
        scheduler = replica.engine.scheduler
        offer = attribute(scheduler, "express", None)
        pool = replica.batch.pool
        terms = None if offer is None or type(pool) not in (BlockPool, OwnBlocks) else offer(pool.total)
        if terms is None:
            return None
        kind = LaneAhead if attribute(scheduler, "async_scheduling", False) else Lane
        if kind is LaneAhead and attribute(scheduler, "order", None) is not None:
            return None
        return kind(replica, clients, terms, self._door.lets_in, ingress_ns=self._resolved.ingress_ns)

    def fleet(self) -> Assembly:
        """Several replicas behind a router."""
        replicas = self._replicas("serve", self._recorder)
        clients = self._clients(replicas, lambda request: server)
        router = self._router(self._resolved.scenario.router, len(replicas), "arrivals")
        server = Fleet(
            self._env,
            Later(self._env),
            replicas,
            router,
            self._recorder,
            done=clients.done,
            turn_away=clients.turn_away,
        )
        return Assembly([(self._env, clients)], replicas, server)

    def handoff(self) -> Assembly:
        """Prefill and decode apart."""
        first, second = self._resolved.parts
        later = Later(self._env)
        server = Handoff(self._env, later, self._terms(), self._recorder, lambda request: clients.done(request))
        sides = [Side(server.pull) for _ in range(second.replicas)]
        prefill = self._replicas("prefill", server.at_prefill)
        decode = self._replicas("decode", server.at_decode, sides)
        clients = self._clients(prefill, lambda request: server)
        routers = (
            self._router(first.scenario.router, len(prefill), "arrivals"),
            self._router(second.scenario.router, len(decode), "hand-offs"),
        )
        server.connect(prefill, decode, sides, routers, clients.turn_away)
        clients.on_draining = server.tell_draining
        return Assembly([(self._env, clients)], [*prefill, *decode], server)

    def _terms(self) -> Terms:
        disaggregation = self._resolved.scenario.disaggregation
        assert disaggregation is not None
        link = disaggregation.link
        bytes_per_token = max(part.kv_bytes_per_token() for part in self._resolved.parts)
        return Terms(
            at_prefill=disaggregation.first_token == "prefill",  # noqa: S105 - an LLM's token
            ns_per_token=bytes_per_token / link.gb_per_s,  # 10^9 bytes a second are a byte a nanosecond
            ns_per_block=link.per_block_us * NS_PER_US,
            latency_ns=round(link.latency_ms * NS_PER_MS),
        )

    def _clients(
        self, replicas: list[Replica], route: Callable[[Request], Server], share: Share | None = None
    ) -> Clients:
        resolved = self._resolved
        pool_tokens = max(part.capacity.tokens for part in resolved.parts if part.role != "prefill")
        return Clients(
            self._env, self._workload, replicas, route, self._recorder, self._door,
            max_model_len=resolved.max_model_len, pool_tokens=pool_tokens, ingress_ns=resolved.ingress_ns,
            horizon_ns=resolved.horizon_ns, share=share,
        )  # fmt: skip

    def _router(self, description: Router, replicas: int, name: str) -> Router:
        router: Router = replace(description)  # type: ignore[type-var]  # routers are dataclasses
        rng = stream(self._resolved.scenario.settings.seed, "router", name)
        router.begin(Outlook(rng, self._contents, self._workload, replicas))
        return router

    def _replicas(self, role: str, recorder: Recorder, sides: list[Side] | None = None) -> list[Replica]:
        made: list[Replica] = []
        first = 0  # numbers go through all parts
        for part in self._resolved.parts:
            for number in range(first, first + part.replicas if part.role == role else first):
                scheduler = part.scheduler()
                if sides is not None:
                    scheduler = Pulling(scheduler, sides[len(made)])
                made.append(self._replica(number, part, scheduler, recorder, single=False, alone=False))
            first += part.replicas
        return made

    def _replica(
        self, number: int, part: Part, scheduler: Scheduler, recorder: Recorder, *, single: bool, alone: bool
    ) -> Replica:
        engine = Engine(
            number,
            scheduler,
            self._pool(part, scheduler),
            recorder,
            name=part.scheduler_kind,
            max_model_len=self._resolved.max_model_len,
            log=recorder.steps is not None,
        )
        return Replica(
            self._env,
            engine,
            part.cost,
            single=single,
            alone=alone,
            step=self._stepwise,
            ahead_of_gpu=attribute(scheduler, "async_scheduling", False),
            horizon_ns=self._resolved.horizon_ns,
        )

    def _pool(self, part: Part, scheduler: Scheduler) -> BlockPool:
        """The scheduler's own kind of KV memory, else blocks that remember their contents or do not."""
        capacity = part.capacity
        own = attribute(scheduler, "pool", None)
        if own is not None:
            pool: BlockPool = own(capacity.tokens, self._contents)
            return pool
        cached = attribute(scheduler, "caching", False)
        if cached and part.role == "serve":
            return cache(scheduler, capacity.blocks, capacity.block_size, self._contents)
        plain, caching = POOLS[part.role]
        blocks, block_size = capacity.blocks, capacity.block_size
        return caching(blocks, block_size, self._contents) if cached else plain(blocks, block_size)
