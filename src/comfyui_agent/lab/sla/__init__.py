"""What a service promises, held against what was measured."""
