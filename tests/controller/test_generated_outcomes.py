import pytest

from controller.switches.generate_outcomes import SOURCE, TARGET, generate


def test_the_outcomes_are_up_to_date() -> None:
    assert TARGET.read_text() == generate(SOURCE.read_text()), (
        "run python -m controller.switches.generate_outcomes"
    )


def test_other_source_is_refused() -> None:
    with pytest.raises(ValueError, match="declares no enum outcome_t"):
        generate("const bit<8> X = 1;")
