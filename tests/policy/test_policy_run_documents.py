"""The rule that a version of a run keeps its document."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules import run_documents
from policies.rules.model import UNKNOWN, Resource
from policies.rules.run_documents import RUN_DOCUMENTS
from tests.policy.policy_examples import stack_violations
from training import runs

LAUNCHED, EDITED = "1" * 64, "2" * 64


def stash(now: Any, launched: Any, key: str = runs.DOCUMENT) -> Resource:
    props = {"input": {key: now}, "output": {key: launched}}
    return Resource(type=run_documents.STASH, props=props, urn="urn:hello-v1")


@pytest.mark.parametrize(
    "resource",
    [
        stash(LAUNCHED, LAUNCHED),
        stash(EDITED, UNKNOWN),
        stash(UNKNOWN, LAUNCHED),
        stash(EDITED, LAUNCHED, "another program's"),
        Resource(type=run_documents.STASH, props={"input": {runs.DOCUMENT: EDITED}}),
        Resource(type=run_documents.STASH, props={"input": 3, "output": 4}),
    ],
)
def test_an_unchanged_document_and_other_values_are_allowed(resource: Resource) -> None:
    assert stack_violations(RUN_DOCUMENTS, [resource]) == []


def test_an_edited_document_is_refused_by_the_resource_of_its_version() -> None:
    (found,) = stack_violations(RUN_DOCUMENTS, [stash(EDITED, LAUNCHED)])
    assert found.urn == "urn:hello-v1" and found.path == "document"
    assert found.got.startswith(EDITED[:8]) and found.expected == LAUNCHED[:8]
    assert "raise `version`" in found.remedy


def test_the_rule_and_the_program_use_the_same_key() -> None:
    assert run_documents.KEY == runs.DOCUMENT
