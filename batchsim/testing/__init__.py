"""For tests of schedulers: play a recording of a real one through batchsim's."""

from batchsim.testing.replay import replay

__all__ = ["replay"]
