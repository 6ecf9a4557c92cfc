"""One module a command: its name is the command's, its function `command` takes the options and returns an exit
code."""
