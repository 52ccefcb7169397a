"""Each error code becomes an exception whose type says what to do."""

from __future__ import annotations

import pytest
from oncelog import errors
from oncelog.client.errors import ErrorCode, KafkaError, error_for


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.NETWORK_EXCEPTION, errors.NetworkError),
        (ErrorCode.REQUEST_TIMED_OUT, errors.KafkaTimeoutError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, errors.StaleMetadataError),
        (ErrorCode.NOT_COORDINATOR, errors.CoordinatorError),
        (ErrorCode.PRODUCER_FENCED, errors.ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, errors.ProducerFencedError),
        (ErrorCode.TRANSACTION_ABORTABLE, errors.AbortableError),
        (ErrorCode.INVALID_TXN_STATE, errors.FatalError),
        (ErrorCode.UNSUPPORTED_VERSION, errors.UnsupportedVersionError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, errors.AuthorizationError),
        (ErrorCode.MESSAGE_TOO_LARGE, errors.RecordTooLargeError),
        (ErrorCode.INVALID_RECORD, KafkaError),
    ],
)
def test_the_type_says_what_to_do(code: ErrorCode, kind: type[KafkaError]) -> None:
    error = error_for(code, "what happened")
    assert type(error) is kind
    assert error.code is code
    assert "what happened" in str(error)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.retriable])
def test_what_is_retriable_has_a_retriable_type(code: ErrorCode) -> None:
    assert isinstance(error_for(code), errors.RetriableError)


def test_a_code_of_a_newer_broker_is_no_crash() -> None:
    assert error_for(31_000).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_classes_that_python_programs_expect() -> None:
    assert issubclass(errors.KafkaTimeoutError, TimeoutError)
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.ProducerFencedError, errors.FatalError)
    assert not issubclass(errors.CommitUnknownError, errors.RetriableError)
