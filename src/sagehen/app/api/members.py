"""Members of requests that have no effect, with the reason, and those that are refused.

Each is `Shape.Member` of botocore's model, or `*.Member` for all shapes of the service. The code
of an operation has to name every other member; a test compares.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

Reasons = Mapping[str, str]

_NO_KMS = "Sagehen encrypts nothing: the disk below it may"
_NO_VPC = "containers run on your own machines, in no VPC"
_NO_ROLES = "roles are not checked"
_SAME_MACHINE = "instances are processes or containers of machines that are there"
_AT_ONCE = "an update is all at once, when its instances are healthy; other ways are refused"
_NO_DEBUGGER = "there is no SageMaker Debugger"
_NO_TRACKING = "there is no experiment tracking"
_ONE_ACCOUNT = "there is one account"
_NO_REQUESTER = "nobody pays for requests"

WITHOUT_EFFECT: Mapping[str, Reasons] = {
    "application-autoscaling": {
        "RegisterScalableTargetRequest.RoleARN": _NO_ROLES,
    },
    "cloudwatch": {
        "PutMetricDataInput.StrictEntityValidation": "EntityMetricData is refused",
        "GetMetricDataInput.LabelOptions": "labels hold no times: their dynamic values are refused",
        "EvaluationWindow.SlidingWindow": "it is the default; a WallClockWindow is refused",
    },
    "events": {
        "PutRuleRequest.RoleArn": _NO_ROLES,
        "Target.RoleArn": _NO_ROLES,
        "DeleteRuleRequest.Force": "there are no managed rules",
        "RemoveTargetsRequest.Force": "there are no managed rules",
    },
    "iam": {
        f"SimulatePrincipalPolicyRequest.{member}": "every action is allowed: " + _NO_ROLES
        for member in (
            "PolicySourceArn",
            "PolicyInputList",
            "PermissionsBoundaryPolicyInputList",
            "PolicyExclusionList",
            "ResourcePolicy",
            "ResourceOwner",
            "CallerArn",
            "ContextEntries",
            "ResourceHandlingOption",
            "MaxItems",
            "Marker",
        )
    },
    "logs": {
        "DescribeLogGroupsRequest.includeLinkedAccounts": _ONE_ACCOUNT,
        "FilterLogEventsRequest.interleaved": "as in CloudWatch: events are always interleaved",
        "*.unmask": "no data protection policy masks anything",
    },
    "s3": {
        "*.RequestPayer": _NO_REQUESTER,
        "*.ServerSideEncryption": _NO_KMS,
        "*.SSEKMSKeyId": _NO_KMS,
        "*.BucketKeyEnabled": _NO_KMS,
        "*.OptionalObjectAttributes": "no object is restored from an archive",
        **{
            f"CompletedPart.ChecksumXXHASH{kind}": "an upload's parts have no such checksum"
            for kind in ("64", "3", "128")
        },
        "CopyObjectRequest.AnnotationDirective": "objects have no annotations",
        "ListObjectVersionsRequest.VersionIdMarker": "an object has one version",
        "Grantee.Type": "the grantee's ID or URI says it",
        **{
            f"PublicAccessBlockConfiguration.{member}": "no ACL or policy grants access"
            for member in ("IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        },
    },
    "sagemaker": {
        "CreateModelInput.ExecutionRoleArn": _NO_ROLES,
        "CreateModelInput.VpcConfig": _NO_VPC,
        "ImageConfig.RepositoryAccessMode": _NO_VPC,
        "ImageConfig.RepositoryAuthConfig": "of the process launcher, which pulls no image; "
        "refused by the docker launcher",
        "S3ModelDataSource.ModelAccessConfig": "no model is gated by a licence",
        "CreateEndpointConfigInput.ExecutionRoleArn": _NO_ROLES,
        "CreateEndpointConfigInput.KmsKeyId": _NO_KMS,
        "CreateEndpointConfigInput.VpcConfig": _NO_VPC,
        "AsyncInferenceOutputConfig.KmsKeyId": _NO_KMS,
        **{
            f"DataCaptureConfig.{member}": "of EnableCapture false; true is refused"
            for member in (
                "InitialSamplingPercentage",
                "DestinationS3Uri",
                "KmsKeyId",
                "CaptureOptions",
                "CaptureContentTypeHeader",
            )
        },
        "MetricsConfig.EnableDetailedObservability": "metrics of endpoints are always by instance",
        "MetricsConfig.MetricPublishFrequencyInSeconds": "metrics are published every minute",
        "ProductionVariant.VolumeSizeInGB": _SAME_MACHINE,
        "ProductionVariant.InferenceAmiVersion": _SAME_MACHINE,
        "ProductionVariant.EnableSSMAccess": _SAME_MACHINE,
        "ProductionVariant.CapacityReservationConfig": _SAME_MACHINE,
        "TrafficRoutingConfig.WaitIntervalInSeconds": _AT_ONCE,
        "BlueGreenUpdatePolicy.TerminationWaitInSeconds": _AT_ONCE,
        "BlueGreenUpdatePolicy.MaximumExecutionTimeoutInSeconds": _AT_ONCE,
        "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "MetricDefinitions are read "
        "whether it is true or false",
        "TrainingImageConfig.TrainingRepositoryAccessMode": _NO_VPC,
        "OutputDataConfig.KmsKeyId": _NO_KMS,
        "ResourceConfig.VolumeKmsKeyId": _NO_KMS,
        "ResourceConfig.KeepAlivePeriodInSeconds": _SAME_MACHINE,
        "CreateTrainingJobRequest.RoleArn": _NO_ROLES,
        "CreateTrainingJobRequest.VpcConfig": _NO_VPC,
        "CreateTrainingJobRequest.EnableInterContainerTrafficEncryption": "the hosts of a job are "
        "on one machine",
        "CreateTrainingJobRequest.DebugHookConfig": _NO_DEBUGGER,
        "CreateTrainingJobRequest.DebugRuleConfigurations": _NO_DEBUGGER,
        "CreateTrainingJobRequest.TensorBoardOutputConfig": _NO_DEBUGGER,
        "*.ProfilerConfig": _NO_DEBUGGER,
        "*.ProfilerRuleConfigurations": _NO_DEBUGGER,
        "*.RemoteDebugConfig": "there is no Systems Manager; attach to the process itself",
        "CreateTrainingJobRequest.InfraCheckConfig": _SAME_MACHINE,
        "CreateTrainingJobRequest.MlflowConfig": _NO_TRACKING,
        "*.ExperimentConfig": _NO_TRACKING,
        "CreateTrainingJobRequest.SessionChainingConfig": _NO_ROLES,
        "ResourceConfigForUpdate.KeepAlivePeriodInSeconds": _SAME_MACHINE,
        "TransformOutput.KmsKeyId": _NO_KMS,
        "BatchDataCaptureConfig.KmsKeyId": _NO_KMS,
        "TransformResources.VolumeKmsKeyId": _NO_KMS,
        "TransformResources.TransformAmiVersion": _SAME_MACHINE,
    },
    "sagemaker-runtime": {},
    "sns": {},
    "sqs": {
        "*.StringListValues": "reserved by SQS, which does not use it",
        "*.BinaryListValues": "reserved by SQS, which does not use it",
    },
    "sts": {},
}

REFUSED: Mapping[str, tuple[str, ...]] = {
    "application-autoscaling": ("PutScalingPolicyRequest.PredictiveScalingPolicyConfiguration",),
    "cloudwatch": (
        "PutMetricDataInput.EntityMetricData",
        "*.ActionConfiguration",
        "PutMetricAlarmInput.EvaluationCriteria",
        "PutMetricAlarmInput.EvaluationInterval",
        "PutMetricAlarmInput.ThresholdMetricId",
        "PutMetricAlarmInput.WarmUpConfiguration",
        "EvaluationWindow.WallClockWindow",
    ),
    "events": (
        "*.BodyParameters",
        "*.ConnectivityParameters",
        "*.InvocationConnectivityParameters",
        "*.KmsKeyIdentifier",
        "*.OAuthParameters",
        "PutEventsRequest.EndpointId",
        "PutRuleRequest.ScheduleExpression",
        *(
            f"Target.{kind}Parameters"
            for kind in (
                "AppSync",
                "Batch",
                "Ecs",
                "Kinesis",
                "RedshiftData",
                "RunCommand",
                "SageMakerPipeline",
                "Sqs",
            )
        ),
    ),
    "s3": (
        "*.BypassGovernanceRetention",
        "*.MFA",
        "*.ObjectLockEventHold",
        "*.ObjectLockEventHoldDurationDays",
        "*.ObjectLockEventHoldDurationYears",
        "*.ObjectLockLegalHoldStatus",
        "*.ObjectLockMode",
        "*.ObjectLockRetainUntilDate",
        "*.SSECustomerAlgorithm",
        "*.SSECustomerKey",
        "*.SSECustomerKeyMD5",
        "*.SSEKMSEncryptionContext",
        "CreateBucketConfiguration.Bucket",
        "CreateBucketConfiguration.Location",
        "Grantee.EmailAddress",
    ),
    "sagemaker": (
        "ContainerDefinition.AdditionalModelDataSources",
        "ContainerDefinition.ContainerMetricsConfig",
        "ContainerDefinition.InferenceSpecificationName",
        "ContainerDefinition.ModelPackageName",
        "S3ModelDataSource.ETag",
        "S3ModelDataSource.HubAccessConfig",
        "S3ModelDataSource.ManifestEtag",
        "S3ModelDataSource.ManifestS3Uri",
        "CreateEndpointConfigInput.CrossRegionTrafficConfig",
        "CreateEndpointConfigInput.ExplainerConfig",
        "ProductionVariant.AcceleratorPartitionLayouts",
        "ProductionVariant.AcceleratorType",
        "ProductionVariant.CoreDumpConfig",
        "ProductionVariant.InstancePools",
        "ProductionVariant.ManagedInstanceScaling",
        "ProductionVariant.VariantInstanceProvisionTimeoutInSeconds",
        "ProductionVariantRoutingConfig.PrefixAwareRoutingConfig",
        "AutoRollbackConfig.Alarms",
        "DeploymentConfig.RollingUpdatePolicy",
        "AlgorithmSpecification.AlgorithmName",
        "CreateTrainingJobRequest.ModelPackageConfig",
        "CreateTrainingJobRequest.ServerlessJobConfig",
        "DataSource.DatasetSource",
        "DataSource.FileSystemDataSource",
        "ResourceConfig.InstanceGroups",
        "ResourceConfig.InstancePlacementConfig",
        "ResourceConfig.InstancePreferences",
        "ResourceConfig.SelectedInstanceCount",
        "ResourceConfig.SelectedInstanceType",
        "ResourceConfig.TrainingPlanArn",
        "S3DataSource.HubAccessConfig",
        "S3DataSource.InstanceGroupNames",
        "S3DataSource.ModelAccessConfig",
        "TrainingImageConfig.TrainingRepositoryAuthConfig",
    ),
    "sagemaker-runtime": (
        "*.EnableExplanations",
        "*.InferenceComponentName",
        "*.PrefixAwareId",
    ),
    "sns": (
        "CreateTopicInput.DataProtectionPolicy",
        "PublishInput.PhoneNumber",
    ),
    "sqs": ("ReceiveMessageRequest.ReceiveRequestAttemptId",),
}
"""Refused whatever their value is. Their own members need not be named in the code."""


def is_listed(entries: Collection[str], member: str) -> bool:
    """`member`: `Shape.Member`."""
    return member in entries or f"*.{member.partition('.')[2]}" in entries


def input_members(shape: Any, listed: Collection[str] = ()) -> Iterator[tuple[str, str, Any]]:
    """Yields `Shape.Member`, path and shape of an operation's input, each once.

    What is inside of listed members is left out.
    """
    pending, seen = [("", shape)], set()
    while pending:
        path, shape = pending.pop(0)
        if shape is None or shape.name in seen:
            continue
        if shape.type_name == "list":
            pending.append((f"{path}[]", shape.member))
        elif shape.type_name == "map":
            pending.append((f"{path}{{}}", shape.value))
        elif shape.type_name == "structure":
            seen.add(shape.name)
            for name, inner in shape.members.items():
                member, inner_path = f"{shape.name}.{name}", f"{path}.{name}".lstrip(".")
                yield member, inner_path, inner
                if not is_listed(listed, member):
                    pending.append((inner_path, inner))
