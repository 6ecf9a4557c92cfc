"""What people see of a run: the console table, the files, the figures."""
