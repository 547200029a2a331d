"""The engine behind the simulator's wire: queue, validation, cache, execution and simulated nodes."""
