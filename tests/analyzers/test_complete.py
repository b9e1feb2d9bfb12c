"""A load and its timing from what was given of them."""

from __future__ import annotations

import pytest

from whybound.analyzers.complete import complete


def test_a_request_is_its_first_token_and_the_gaps_after_it():
    facts = complete(
        {
            "client_ttft_mean_s": 3.0,
            "client_tpot_mean_s": 0.02,
            "inflight_mean_count": 64.0,
            "output_mean_tokens": 201.0,
        }
    ).facts
    assert facts["client_e2e_mean_s"] == pytest.approx(7.0)
    assert facts["completed_rate_per_s"] == pytest.approx(64 / 7)
