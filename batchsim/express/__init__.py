"""The express lane: a replica on which nothing is contended, in one loop over columns.

While everybody decodes and whoever arrives fits at once (`scheduler.Express`), what the next step is needs no asking: all
who have come are admitted whole and everybody decodes. So requests are not made into objects, and no event is waited for:
arrivals are read ahead from the clients' feed. Before anything else could happen (blocks, seats or the token budget
run short, an odd request, the horizon) the lane ends at the start of a step, everyone in it becomes a `Request` again, and
the replica goes on as always. Records are the same to the last number (`tests/laws/test_express.py`).

`lane.py`: steps planned when the one before has ended.  `ahead.py`: when it starts.  `road.py`: what both share.
"""

from batchsim.express.ahead import LaneAhead
from batchsim.express.lane import Lane
from batchsim.express.road import Sender

__all__ = ["Lane", "LaneAhead", "Sender"]
