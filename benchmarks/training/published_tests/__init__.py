"""Tests that others have published for backends like ours, run with our backend.

``python -m benchmarks.training.published_tests torch`` runs PyTorch's own distributed tests, which its
package contains, with the backends "ina" and "gloo"; ``… horovod FILE`` runs Horovod's test file of that path
with `hostlib.horovod` in place of ``horovod.torch``. Each prints a table of outcomes.
"""
