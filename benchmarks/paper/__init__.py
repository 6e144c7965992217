"""The paper's experiments: one module a table or figure, measured and shown apart."""
