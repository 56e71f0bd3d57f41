"""A model cut into stages: FuncPipe's problem over a store, and Hydrozoa's over direct links."""
