"""The systems that are measured: one module each. What a module must bring is `bench.system`."""
