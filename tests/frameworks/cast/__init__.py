"""The agents of the interoperability tests: one module per framework, all with the same brain."""
