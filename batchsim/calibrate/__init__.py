"""Calibration: measured kernel timings -> the cost profile of a GPU; and the profiler that measures them.

Nothing is imported here: `profiler` and `gpu_timer` run on a bare GPU machine, with torch and numpy alone.
"""
