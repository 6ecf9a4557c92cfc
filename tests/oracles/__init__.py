"""Plain transcriptions of real schedulers, to test the fast ones against."""
