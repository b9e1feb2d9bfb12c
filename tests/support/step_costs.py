"""Step costs that hold together, for property tests."""

from hypothesis import strategies as st

from whybound.analyzers.step_cost import StepCost

STEPS = st.builds(
    StepCost,
    weights_s=st.floats(1e-4, 0.05),
    expert_s=st.just(0.0) | st.floats(1e-4, 0.05),
    expert_touch=st.floats(0.01, 0.3),
    token_s=st.floats(1e-7, 1e-3),
    attention_ratio=st.floats(0, 1),
    kv_s=st.just(0.0) | st.floats(1e-10, 1e-7),
    sequence_s=st.floats(0, 1e-4),
    floor_s=st.floats(0, 0.01),
    launch_s=st.floats(0, 0.02),
    host_s=st.floats(0, 0.01),
    host_sequence_s=st.floats(0, 1e-4),
    link_s=st.just(0.0) | st.floats(1e-5, 0.01),
    link_token_s=st.floats(0, 1e-5),
    exposed=st.floats(0, 1),
    serial=st.floats(0, 1),
    small=st.floats(0, 1),
)
