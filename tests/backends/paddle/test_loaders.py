"""Tests of `devshim.prefetch` over Paddle's loader with worker processes."""

from __future__ import annotations

import numpy as np
import pytest
from loader_cases import VALUES, LoaderCases, Rows

import devshim as ds

paddle = ds.framework("paddle")


class TestPaddle(LoaderCases):
    """In a plain loop that ends early, Paddle itself leaves the workers and a thread."""

    def loader(self, bad=None, num_workers=2, **options):
        """Return a loader whose thread looks once a second, not every 5 seconds, for the end of the iteration."""
        options |= {"num_workers": num_workers, "timeout": 1, "places": [paddle.CPUPlace()]}
        return paddle.io.DataLoader(Rows(bad), batch_size=2, **options)

    @pytest.mark.parametrize("options", [{"use_shared_memory": False}, {"num_workers": 0}])
    def test_other_loops_can_end_early(self, options):
        """Without workers, the loader has a thread."""
        for batch in ds.prefetch(self.loader(**options), "cpu"):
            assert np.array_equal(ds.to_numpy(batch), VALUES[:2])
            break

    @pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
    def test_an_error_in_a_worker_ends_all_workers(self):
        """Paddle raises its own error, and its thread ends with the worker's."""
        with pytest.raises(Exception, match=r".") as caught:
            list(ds.prefetch(self.loader(bad=6), "cpu"))
        assert not isinstance(caught.value, AssertionError)

    def test_persistent_workers_stay_with_the_loader(self):
        persistent = self.loader(persistent_workers=True)
        for _ in range(2):
            batches = [ds.to_numpy(batch) for batch in ds.prefetch(persistent, "cpu")]
            assert np.array_equal(np.concatenate(batches), VALUES)
        persistent._iterator._try_shutdown_all()
