"""CreateTransformJob: the row it makes, and what it refuses."""

import pytest

from sagehen.frame import tags
from sagehen.services.sagemaker.job_tables import JobStage, JobStatus
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.creation import job_environment
from sagehen.wire.errors import AwsError
from support.transform_jobs import transform_input, transform_request

ARN = "arn:aws:sagemaker:us-east-1:000000000000:transform-job/"


@pytest.fixture
def make(server):
    """`make(name, Member=…)` is the stored record of a new job of the model `m`."""
    server.model(Environment={"A": "model", "B": "model"})

    def create(name="job", **members):
        server.CreateTransformJob(**transform_request(name, **members))
        return stored(server, name)

    return create


def stored(server, name="job"):
    with server.database.read() as connection:
        return transform_jobs.get(connection, name)


def test_a_job_is_a_row_that_waits_to_be_begun(server, make):
    job = make("My-Job", Tags=[{"Key": "a", "Value": "b"}])
    assert (job.arn, job.stage, job.status) == (
        ARN + "my-job",
        JobStage.WAITING,
        JobStatus.IN_PROGRESS,
    )
    assert "Tags" not in job.definition
    with server.database.read() as connection:
        assert tags.get(connection, job.arn) == {"a": "b"}


def test_it_has_a_copy_of_its_model_with_the_version_of_its_data(server, make):
    job = make()
    server.DeleteModel(ModelName="m")
    (container,) = job.containers
    assert container.model_data_url == "s3://bucket/model.tar.gz"
    assert container.model_data_etag == server.objects.head("bucket", "model.tar.gz").etag


def test_the_job_s_variables_win_and_options_stay_outside(make):
    job = make(Environment={"B": "job", "SAGEHEN_TRANSFORM_MAX_FAILED_RECORDS": "1%"})
    environment = job.containers[0].environment
    assert (environment["A"], environment["B"]) == ("model", "job")
    assert not any(name.startswith("SAGEHEN_TRANSFORM_") for name in environment)
    assert job.options == {"MAX_FAILED_RECORDS": "1%"}


def test_containers_learn_that_this_is_a_batch():
    assert job_environment({})["SAGEMAKER_BATCH"] == "true"
    assert job_environment({}).keys() == {"SAGEMAKER_BATCH", "SAGEMAKER_MODEL_SERVER_TIMEOUT"}
    chosen = job_environment(
        {
            "MaxPayloadInMB": 0,
            "BatchStrategy": "SingleRecord",
            "MaxConcurrentTransforms": 4,
            "Environment": {"SAGEMAKER_BATCH": "no"},
            "ModelClientConfig": {"InvocationsTimeoutInSeconds": 30},
        }
    )
    assert chosen == {
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "0",
        "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "4",
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": "31",
    }


def test_a_name_is_used_once_in_any_case(make):
    make("Job")
    with pytest.raises(AwsError) as refused:
        make("jOB")
    assert refused.value.code == "ResourceInUse"


def test_only_so_many_may_wait(server, make):
    server.configure(max_waiting_transform_jobs=1)
    make("a")
    with pytest.raises(AwsError) as refused:
        make("b")
    assert refused.value.code == "ResourceLimitExceeded"


def test_only_so_many_instances_may_be_asked_for(server, make):
    server.configure(max_transform_instances=2)
    with pytest.raises(AwsError, match="max_transform_instances") as refused:
        make(TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 3})
    assert refused.value.code == "ResourceLimitExceeded"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"ModelName": "none"}, "Could not find model"),
        ({"MaxPayloadInMB": 101}, "may be 100 at most"),
        ({"MaxPayloadInMB": 51, "MaxConcurrentTransforms": 2}, "51 is 102"),
        ({"MaxConcurrentTransforms": 17}, "17 * 6 is 102"),
        (
            {"TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 101}},
            "may be 100 at most",
        ),
        ({"TransformResources": {"InstanceType": "ml.x.y", "InstanceCount": 1}}, "not known"),
        ({"TransformOutput": {"S3OutputPath": "s3://none/out"}}, "there is no bucket none"),
        ({"TransformOutput": {"S3OutputPath": "s3://b!/out"}}, "not an address in S3"),
        ({"DataCaptureConfig": {"DestinationS3Uri": "s3://none/c"}}, "there is no bucket none"),
        ({"TransformInput": transform_input("s3://bucket/none/")}, "No S3 objects found"),
        ({"TransformInput": transform_input("s3://none/")}, "No S3 objects found"),
        (
            {"TransformInput": transform_input("s3://bucket/many", "ManifestFile")},
            "No S3 objects found",
        ),
        ({"TransformInput": transform_input(kind="AugmentedManifestFile")}, "augmented manifests"),
        ({"TransformInput": transform_input(kind="Converse")}, "conversations"),
        ({"Environment": {"SAGEHEN_GPU_FRACTION": "2"}}, "SAGEHEN_GPU_FRACTION"),
        ({"Environment": {"SAGEHEN_TRANSFORM_X": "2"}}, "no option SAGEHEN_TRANSFORM_X"),
        (
            {"Environment": {"SAGEHEN_TRANSFORM_MAX_FAILED_RECORDS": "few"}},
            "neither a number of records",
        ),
        ({"Environment": {"SAGEHEN_TRANSFORM_SLICES": "few"}}, "one of: exclusive, inclusive"),
        ({"DataProcessing": {"InputFilter": "$[1]"}}, "InputFilter needs"),
        (
            {
                "TransformInput": transform_input(ContentType="text/csv", SplitType="Line"),
                "DataProcessing": {"JoinSource": "Input"},
            },
            "Accept to be the same",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(server, make, refusal, members, said):
    assert said in refusal(lambda: make(**members))
    assert stored(server) is None


def test_a_stream_has_no_limit_of_concurrent_payloads(make):
    assert make(MaxPayloadInMB=0, MaxConcurrentTransforms=1000)


def test_filters_and_joins_that_go_together_are_taken(make):
    form = {"ContentType": "text/csv", "SplitType": "Line"}
    assert make(
        TransformInput=transform_input(**form),
        TransformOutput={
            "S3OutputPath": "s3://bucket/out",
            "Accept": "text/csv",
            "AssembleWith": "Line",
        },
        DataProcessing={"InputFilter": "$[1:]", "JoinSource": "Input", "OutputFilter": "$[0,-1]"},
    )


CONTAINER = {"Image": "sagemaker-xgboost:1", "ModelDataUrl": "s3://bucket/model.tar.gz"}


def test_models_of_many_archives_or_of_direct_containers_are_refused(server, make, refusal):
    server.model("many", Mode="MultiModel", ModelDataUrl="s3://bucket/many/")
    assert "MultiModel" in refusal(lambda: make(ModelName="many"))
    server.CreateModel(
        ModelName="direct",
        Containers=[{**CONTAINER, "ContainerHostname": name} for name in ("a", "b")],
        InferenceExecutionConfig={"Mode": "Direct"},
    )
    assert "Mode Direct" in refusal(lambda: make(ModelName="direct"))


def test_pipelines_are_taken_and_each_container_has_the_variables_of_the_job(server, make):
    server.CreateModel(ModelName="line", Containers=[CONTAINER, CONTAINER])
    make(ModelName="line", Environment={"A": "b"})
    assert [container.environment["A"] for container in stored(server).containers] == ["b", "b"]


def test_whole_objects_are_not_streamed_through_a_pipeline(server, make, refusal):
    server.CreateModel(ModelName="line", Containers=[CONTAINER, CONTAINER])
    reason = refusal(lambda: make(ModelName="line", MaxPayloadInMB=0))
    assert "the model line is a pipeline of 2. Set MaxPayloadInMB to at most" in reason
    split = transform_input(ContentType="text/csv", SplitType="Line")
    assert make(ModelName="line", MaxPayloadInMB=0, TransformInput=split)


def test_a_model_that_is_never_run_is_refused(server, make, refusal):
    variables = {"": "s3://results/", "_KEY": "0", "_ONLY": "true"}
    environment = {f"SAGEHEN_OFFLINE_RESULTS{name}": value for name, value in variables.items()}
    server.CreateModel(
        ModelName="stored", PrimaryContainer={"Image": "any:1", "Environment": environment}
    )
    assert "The model stored is never run" in refusal(lambda: make(ModelName="stored"))
