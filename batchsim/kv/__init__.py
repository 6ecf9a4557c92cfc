"""KV memory: blocks, their capacity, and the prefix cache."""
