"""The mutants that `make mutants` puts into the source still fit it, and each is a program."""

from __future__ import annotations

import pytest
from support.mutants.catalogue import MUTANTS, ROOT, SUITES, Mutant, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    changed = mutated(mutant, source)
    assert changed != source
    compile(changed, mutant.file, "exec")
    assert set(mutant.suites) <= set(SUITES)


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
