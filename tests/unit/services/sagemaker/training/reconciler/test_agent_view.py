"""What control knows of the agent's attempts: reports, and requests that they do not show yet."""

import pytest

from sagehen.frame.job_specs import JobOutcome, JobReport
from sagehen.services.sagemaker.training.reconciler.agent_view import AgentView
from sagehen.services.sagemaker.training.reconciler.plan import AttemptPresence
from support.training_jobs import running_job

JOB = running_job()
ATTEMPT = JOB.attempt_id
REPORTS = {ATTEMPT: JobReport(attempt_id=ATTEMPT)}


@pytest.fixture
def view() -> AgentView:
    view = AgentView()
    view.look({})
    return view


def presence(view: AgentView) -> AttemptPresence:
    return view.facts(JOB).presence


def test_nothing_is_known_while_the_agent_is_away() -> None:
    view = AgentView()
    assert (view.is_there, presence(view)) == (False, AttemptPresence.UNKNOWN)
    assert view.reported == frozenset()


def test_an_attempt_is_absent_until_it_is_accepted(view: AgentView) -> None:
    assert presence(view) is AttemptPresence.ABSENT
    view.note_accepted(ATTEMPT)
    assert presence(view) is AttemptPresence.UNKNOWN
    view.look(REPORTS)
    assert view.facts(JOB).report == REPORTS[ATTEMPT]


def test_an_accepted_attempt_may_have_died_with_its_agent(view: AgentView) -> None:
    view.note_accepted(ATTEMPT)
    view.look(None)
    view.look({})
    assert presence(view) is AttemptPresence.ABSENT


def test_a_request_without_an_answer_is_unconfirmed(view: AgentView) -> None:
    view.note_unconfirmed(ATTEMPT)
    assert presence(view) is AttemptPresence.UNCONFIRMED
    assert view.has_to_be_stopped(ATTEMPT)
    view.look(None)
    view.look({})
    assert presence(view) is AttemptPresence.UNCONFIRMED
    view.note_absent(ATTEMPT)
    assert presence(view) is AttemptPresence.ABSENT


def test_an_attempt_that_was_reported_before_is_lost(view: AgentView) -> None:
    view.look(REPORTS)
    view.look(None)
    view.look({})
    assert presence(view) is AttemptPresence.LOST


def test_an_attempt_with_stored_phases_was_reported_to_an_earlier_control(view: AgentView) -> None:
    assert view.facts(running_job(phases=1)).presence is AttemptPresence.LOST


def test_a_stop_is_requested_once(view: AgentView) -> None:
    view.look(REPORTS)
    assert view.has_to_be_stopped(ATTEMPT)
    view.note_requested("stop", ATTEMPT)
    assert not view.has_to_be_stopped(ATTEMPT)


@pytest.mark.parametrize("change", [{"stopping": True}, {"outcome": JobOutcome.COMPLETED}])
def test_an_attempt_that_ends_is_not_stopped(view: AgentView, change: dict[str, object]) -> None:
    view.look({ATTEMPT: JobReport(attempt_id=ATTEMPT, **change)})  # type: ignore[arg-type]
    assert not view.has_to_be_stopped(ATTEMPT)


def test_an_attempt_that_is_being_deleted_is_not_reported(view: AgentView) -> None:
    view.look(REPORTS)
    view.note_requested("delete", ATTEMPT)
    assert view.reported == frozenset()
    view.look({})
    view.look(REPORTS)
    assert view.reported == {ATTEMPT}


def test_a_refused_attempt_has_failed_until_it_is_forgotten(view: AgentView) -> None:
    view.note_refused(ATTEMPT, "No such image.")
    report = view.facts(JOB).report
    assert report is not None
    assert (report.outcome, report.failure_reason) == (
        JobOutcome.FAILED,
        "ClientError: No such image.",
    )
    view.forget_all_but(frozenset())
    assert presence(view) is AttemptPresence.ABSENT
