"""Constraints of the models, in AWS's words."""

import pytest

from sagehen.wire.errors import AwsError
from sagehen.wire.services import service
from sagehen.wire.validation.validate import validate


def check(operation, params, name="sagemaker"):
    return validate(service(name).operation_model(operation), params)


def message(operation, params, name="sagemaker", code="ValidationException") -> str:
    with pytest.raises(AwsError) as caught:
        check(operation, params, name)
    assert (caught.value.code, caught.value.status) == (code, 400)
    return caught.value.message


def config(**variant):
    variant = {"VariantName": "v", "ModelName": "m", **variant}
    return {"EndpointConfigName": "c", "ProductionVariants": [variant]}


@pytest.mark.parametrize(
    ("operation", "good", "bad"),
    [
        (
            "CreateEndpointConfig",
            config(InstanceType="ml.m5.large", InitialInstanceCount=1),
            config(InstanceType="ml.m5.large", InitialInstanceCount=-1),
        ),
        ("ListModels", {}, {"MaxResults": 0}),
        ("DeleteEndpoint", {"EndpointName": "A-b-9"}, {"EndpointName": "A_b-9"}),
    ],
)
def test_good_parameters_pass(operation, good, bad):
    assert check(operation, good) is None
    assert "1 validation error detected" in message(operation, bad)


def test_a_name_that_is_too_long():
    name = "a" * 64
    assert message("DescribeEndpoint", {"EndpointName": name}) == (
        f"1 validation error detected: Value '{name}' at 'endpointName' failed to satisfy "
        "constraint: Member must have length less than or equal to 63"
    )


def test_a_name_of_the_wrong_form_deep_inside():
    assert message("CreateEndpointConfig", config(ModelName="a_b")) == (
        "1 validation error detected: Value 'a_b' at 'productionVariants.1.member.modelName' "
        "failed to satisfy constraint: Member must satisfy regular expression pattern: "
        + service("sagemaker").shape_for("ModelName").metadata["pattern"]
    )


def test_what_is_required():
    assert message("CreateEndpointConfig", {"ProductionVariants": [{}]}) == (
        "2 validation errors detected: Value null at 'endpointConfigName' failed to satisfy "
        "constraint: Member must not be null; Value null at "
        "'productionVariants.1.member.variantName' failed to satisfy constraint: Member must not "
        "be null"
    )


def test_an_enum_lists_its_values():
    got = message("ListModels", {"SortOrder": "Sideways"})
    assert got == (
        "1 validation error detected: Value 'Sideways' at 'sortOrder' failed to satisfy "
        "constraint: Member must satisfy enum value set: [Ascending, Descending]"
    )


@pytest.mark.parametrize(
    ("count", "wanted"), [(0, "greater than or equal to 1"), (101, "less than or equal to 100")]
)
def test_numbers_have_a_range(count, wanted):
    got = message("ListModels", {"MaxResults": count})
    assert got.endswith(
        f"Value '{count}' at 'maxResults' failed to satisfy constraint: Member must have value "
        f"{wanted}"
    )


def test_lists_have_a_length():
    assert "Value '[]' at 'productionVariants' failed to satisfy constraint: Member must have " in (
        message("CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": []})
    )
    variants = config()["ProductionVariants"] * 11
    got = message(
        "CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": variants}
    )
    assert got.endswith("Member must have length less than or equal to 10")
    assert "VariantName=v" in got


def test_each_of_a_list_of_strings_is_looked_at():
    vpc = {"SecurityGroupIds": ["sg-1", "b@d"], "Subnets": ["s"]}
    got = message("CreateModel", {"ModelName": "m", "VpcConfig": vpc})
    assert got == (
        "1 validation error detected: Value '[sg-1, b@d]' at 'vpcConfig.securityGroupIds' failed "
        "to satisfy constraint: Member must satisfy constraint: [Member must have length less "
        "than or equal to 32, Member must have length greater than or equal to 0, Member must "
        "satisfy regular expression pattern: [-0-9a-zA-Z]+]"
    )


def test_keys_and_values_of_a_map():
    def model(environment):
        return {"ModelName": "m", "PrimaryContainer": {"Image": "i", "Environment": environment}}

    got = message("CreateModel", model({"1": "x"}))
    assert "Value '{1=x}' at 'primaryContainer.environment'" in got
    assert "Map keys must satisfy constraint: [Member must have length" in got
    got = message("CreateModel", model({"A": "x" * 2000}))
    assert "Map value must satisfy constraint: [Member must have length" in got
    assert len(got) < 1500
    assert "at 'primaryContainer.environment'" in message(
        "CreateModel", model({f"A{n}": "" for n in range(101)})
    )


def test_a_union_has_one_member():
    efs = {"EFSFileSystemConfig": {"FileSystemId": "fs-0123456789abcdef0"}}
    fsx = {"FSxLustreFileSystemConfig": {"FileSystemId": "fs-0123456789abcdef0"}}

    def profile(system):
        settings = {"CustomFileSystemConfigs": [system]}
        return {"DomainId": "d-a", "UserProfileName": "u", "UserSettings": settings}

    check("CreateUserProfile", profile(efs))
    for system in (efs | fsx, {}):
        got = message("CreateUserProfile", profile(system))
        assert "at 'userSettings.customFileSystemConfigs.1.member'" in got
        assert "must have exactly one of its members set: [eFSFileSystemConfig, " in got


def test_tags_may_be_in_any_script():
    arn = "arn:aws:sagemaker:us-east-1:000000000000:model/m"
    check("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "größe", "Value": "大きい"}]})
    got = message("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "a#", "Value": ""}]})
    assert "at 'tags.1.member.key'" in got


def test_the_runtime_has_its_own_name_for_it():
    params = {"EndpointName": "a_b", "Body": b"", "InferenceId": " x"}
    got = message("InvokeEndpoint", params, "sagemaker-runtime", "ValidationError")
    assert got.startswith("2 validation errors detected: ")
    message("GetRole", {}, "iam", "ValidationError")


def test_an_answer_has_a_bound():
    variants = [{} for _ in range(1000)]
    got = message(
        "CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": variants}
    )
    assert got.startswith("50 validation errors detected: ")
    assert len(got) < 20_000


def test_long_values_are_cut():
    got = message("DescribeEndpoint", {"EndpointName": "a" * 1_000_000})
    assert "aaa…'" in got
    assert len(got) < 1000


@pytest.mark.parametrize(("key", "shown"), [("", ""), ("a..b", "A..B")])
def test_required_member_of_sqs_below_any_key(key, shown):
    params = {"QueueUrl": "q", "MessageBody": "m", "MessageAttributes": {key: {}}}
    expected = f"The request must contain the parameter MessageAttributes.{shown}.DataType."
    assert message("SendMessage", params, "sqs", "MissingParameter") == expected
