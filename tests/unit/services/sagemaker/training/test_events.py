"""What EventBridge is told of training jobs and endpoints."""

from sagehen.frame.arns import ArnMaker
from sagehen.services.sagemaker.hosting.events import endpoint_event
from sagehen.services.sagemaker.hosting.records import EndpointRecord, EndpointStatus
from sagehen.services.sagemaker.training.events import training_event
from sagehen.services.sagemaker.training.records import SecondaryStatus
from sagehen.services.sagemaker.training.status import JobUpdate
from support.fleet import deployment
from support.training_jobs import BEGAN, running_job

ARNS = ArnMaker("000000000000", "us-east-1")


def event_of(record):
    return training_event(record, {"team": "a"}, ARNS, BEGAN + 60)


def test_the_event_of_a_job_is_as_documented():
    course = JobUpdate(running_job())
    course.move(SecondaryStatus.DOWNLOADING, BEGAN + 0.0005)
    course.note(started_at=BEGAN + 1.5)
    course.end(SecondaryStatus.FAILED, BEGAN + 2.25, "AlgorithmError: no")
    event = event_of(course.moves[-1])
    envelope = event.envelope()
    assert envelope["detail-type"] == "SageMaker Training Job State Change"
    assert (envelope["source"], envelope["account"]) == ("aws.sagemaker", "000000000000")
    assert envelope["time"] == "1970-01-01T00:16:42Z"
    assert envelope["resources"] == [course.record.arn]
    assert envelope["detail"] == {
        "TrainingJobName": "job",
        "TrainingJobArn": course.record.arn,
        "TrainingJobStatus": "Failed",
        "SecondaryStatus": "Failed",
        "FailureReason": "AlgorithmError: no",
        "AlgorithmSpecification": {"TrainingImage": "model-a", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::000000000000:role/Sagehen",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        "VpcConfig": {},
        "StoppingCondition": {"MaxRuntimeInSeconds": 100},
        "CreationTime": "1000000",
        "TrainingStartTime": "1001500",
        "TrainingEndTime": "1002250",
        "LastModifiedTime": "1002250",
        "SecondaryStatusTransitions": [
            {
                "Status": "Starting",
                "StartTime": "1000000",
                "EndTime": "1000000",
                "StatusMessage": "",
            },
            {
                "Status": "Downloading",
                "StartTime": "1000000",
                "EndTime": "1002250",
                "StatusMessage": "Downloading input data",
            },
            {
                "Status": "Failed",
                "StartTime": "1002250",
                "EndTime": "1002250",
                "StatusMessage": "AlgorithmError: no",
            },
        ],
        "Tags": {"team": "a"},
    }


def test_a_transition_is_always_the_same_event_and_no_other():
    course = JobUpdate(running_job())
    course.move(SecondaryStatus.DOWNLOADING, BEGAN + 1)
    course.move(SecondaryStatus.TRAINING, BEGAN + 2)
    first, second = (event_of(one) for one in course.moves)
    assert first.event_id == event_of(course.moves[0]).event_id != second.event_id
    other = JobUpdate(running_job("other"))
    other.move(SecondaryStatus.DOWNLOADING, BEGAN + 1)
    assert event_of(other.record).event_id != first.event_id


def test_why_it_failed_is_told_only_of_what_failed():
    assert "FailureReason" not in event_of(running_job()).detail


def test_the_event_of_an_endpoint_has_its_status_in_upper_case():
    record = EndpointRecord(
        name="My-Endpoint",
        arn="arn:aws:sagemaker:eu-west-1:123456789012:endpoint/my-endpoint",
        created_at=BEGAN,
        modified_at=BEGAN + 1.5,
        status=EndpointStatus.IN_SERVICE,
        current=deployment("d1", 2),
    )
    event = endpoint_event(record, {"team": "a"}, BEGAN + 2)
    assert (event.region, event.account) == ("eu-west-1", "123456789012")
    assert event.detail_type == "SageMaker Endpoint State Change"
    detail = dict(event.detail)
    (variant,) = detail.pop("ProductionVariants")
    assert set(variant) == {"VariantName", "DesiredWeight", "DesiredInstanceCount"}
    assert detail == {
        "EndpointName": "My-Endpoint",
        "EndpointArn": record.arn,
        "EndpointConfigName": record.current.config_name,
        "EndpointStatus": "IN_SERVICE",
        "CreationTime": 1_000_000,
        "LastModifiedTime": 1_001_500,
        "Tags": {"team": "a"},
    }


def test_every_status_of_an_endpoint_has_a_word():
    for status in EndpointStatus:
        record = EndpointRecord(
            name="e",
            arn="arn:aws:sagemaker:us-east-1:000000000000:endpoint/e",
            created_at=0,
            modified_at=0,
            status=status,
        )
        word = endpoint_event(record, {}, 0).detail["EndpointStatus"]
        assert word.replace("_", "").lower() == status.value.lower()
