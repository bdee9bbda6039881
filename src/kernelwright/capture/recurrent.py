from contextlib import contextmanager


@contextmanager
def recurrent_shapes():
    yield
