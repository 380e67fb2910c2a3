"""Features that Sagehen refuses by name, each with a call that asks for it.

`reference.py` writes the list of docs/compatibility/not-supported.md from these, and
tests/docs/test_not_supported.py makes each call to a real server. A bucket, a model, an endpoint,
a topic, a queue and a rule of the name `unsupported` exist there. None stands for a parameter that
is left out.
"""

from typing import Any, NamedTuple

__all__ = ["UNSUPPORTED", "Unsupported"]

ROLE = "arn:aws:iam::000000000000:role/any"
IMAGE = "sagehen-python:1"
S3_URI = "s3://unsupported/key"
HUB = "arn:aws:sagemaker:us-east-1:000000000000:hub-content/h"
HUB_MODEL = f"{HUB}/Model/m/1.0.0"


class Unsupported(NamedTuple):
    feature: str
    client: str
    """botocore's name of the service"""
    operation: str
    parameters: dict[str, Any]
    names: str
    """what the error names"""


def model(feature: str, names: str, **container: Any) -> Unsupported:
    parameters = {
        "ModelName": "other",
        "ExecutionRoleArn": ROLE,
        "PrimaryContainer": {"Image": IMAGE} | container,
    }
    return Unsupported(feature, "sagemaker", "CreateModel", parameters, names)


def source(feature: str, names: str, **members: Any) -> Unsupported:
    data = {"S3Uri": S3_URI, "S3DataType": "S3Object", "CompressionType": "None"} | members
    return model(feature, names, ModelDataSource={"S3DataSource": data})


VARIANT: dict[str, Any] = {
    "VariantName": "main",
    "ModelName": "unsupported",
    "InstanceType": "ml.m5.large",
    "InitialInstanceCount": 1,
}


def config(
    feature: str, names: str, variant: dict[str, Any] | None = None, **members: Any
) -> Unsupported:
    parameters = {
        "EndpointConfigName": "other",
        "ProductionVariants": [VARIANT | (variant or {})],
        **members,
    }
    return Unsupported(feature, "sagemaker", "CreateEndpointConfig", parameters, names)


def update(feature: str, names: str, **policy: Any) -> Unsupported:
    parameters = {
        "EndpointName": "unsupported",
        "EndpointConfigName": "unsupported-2",
        "DeploymentConfig": policy,
    }
    return Unsupported(feature, "sagemaker", "UpdateEndpoint", parameters, names)


def traffic(kind: str, **size: Any) -> dict[str, Any]:
    routing = {"Type": kind, "WaitIntervalInSeconds": 60, **size}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}


HALF = {"Type": "CAPACITY_PERCENT", "Value": 50}


def invoke(feature: str, names: str, **members: Any) -> Unsupported:
    parameters = {"EndpointName": "unsupported", "Body": b"[1]", **members}
    return Unsupported(feature, "sagemaker-runtime", "InvokeEndpoint", parameters, names)


def training(feature: str, names: str, **members: Any) -> Unsupported:
    parameters: dict[str, Any] = {
        "TrainingJobName": "other",
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["true"],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://unsupported/out"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    for name, value in members.items():
        both = isinstance(value, dict) and name in parameters
        parameters[name] = parameters[name] | value if both else value
    return Unsupported(feature, "sagemaker", "CreateTrainingJob", parameters, names)


def channel(feature: str, names: str, **data_source: Any) -> Unsupported:
    return training(
        feature, names, InputDataConfig=[{"ChannelName": "train", "DataSource": data_source}]
    )


def of_s3(**members: Any) -> dict[str, Any]:
    return {"S3DataType": "S3Prefix", "S3Uri": S3_URI} | members


def transform(feature: str, kind: str) -> Unsupported:
    parameters = {
        "TransformJobName": "other",
        "ModelName": "unsupported",
        "TransformInput": {"DataSource": {"S3DataSource": of_s3(S3DataType=kind)}},
        "TransformOutput": {"S3OutputPath": "s3://unsupported/out"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    return Unsupported(feature, "sagemaker", "CreateTransformJob", parameters, feature)


def target(feature: str, names: str, **members: Any) -> Unsupported:
    parameters = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/unsupported/variant/main",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "MinCapacity": 1,
        "MaxCapacity": 2,
        **members,
    }
    return Unsupported(
        feature, "application-autoscaling", "RegisterScalableTarget", parameters, names
    )


def alarm(feature: str, names: str, **members: Any) -> Unsupported:
    parameters = {
        "AlarmName": "other",
        "Namespace": "N",
        "MetricName": "M",
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanThreshold",
        **members,
    }
    return Unsupported(feature, "cloudwatch", "PutMetricAlarm", parameters, names)


def subscription(protocol: str, endpoint: str) -> Unsupported:
    topic = "arn:aws:sns:us-east-1:000000000000:unsupported"
    parameters = {"TopicArn": topic, "Protocol": protocol, "Endpoint": endpoint}
    return Unsupported(f"protocol `{protocol}`", "sns", "Subscribe", parameters, protocol)


def topic(feature: str, names: str, **attributes: str) -> Unsupported:
    parameters = {"Name": "other", "Attributes": attributes}
    return Unsupported(feature, "sns", "CreateTopic", parameters, names)


def event_target(feature: str, names: str, **members: Any) -> Unsupported:
    one = {"Id": "1", "Arn": "arn:aws:sqs:us-east-1:000000000000:unsupported", **members}
    return Unsupported(
        feature, "events", "PutTargets", {"Rule": "unsupported", "Targets": [one]}, names
    )


def connection(feature: str, names: str, kind: str = "API_KEY", **members: Any) -> Unsupported:
    key = {"ApiKeyAuthParameters": {"ApiKeyName": "a", "ApiKeyValue": "b"}}
    parameters = {
        "Name": "other",
        "AuthorizationType": kind,
        "AuthParameters": (key if kind == "API_KEY" else {}) | members.pop("auth", {}),
        **members,
    }
    return Unsupported(feature, "events", "CreateConnection", parameters, names)


def put(feature: str, names: str, operation: str = "PutObject", **members: Any) -> Unsupported:
    parameters = {"Bucket": "unsupported", **members}
    if operation == "PutObject":
        parameters |= {"Key": "other", "Body": b"x"}
    return Unsupported(feature, "s3", operation, parameters, names)


OAUTH = {
    "OAuthParameters": {
        "ClientParameters": {"ClientID": "a", "ClientSecret": "b"},
        "AuthorizationEndpoint": "https://example.com/token",
        "HttpMethod": "POST",
    }
}
RESOURCE = "arn:aws:vpc-lattice:us-east-1:000000000000:resourceconfiguration/rcfg-0123456789abcdef0"

UNSUPPORTED: dict[str, tuple[Unsupported, ...]] = {
    "Models": (
        model("model packages", "ModelPackageName", ModelPackageName="package"),
        model(
            "additional model data",
            "AdditionalModelDataSources",
            AdditionalModelDataSources=[
                {
                    "ChannelName": "more",
                    "S3DataSource": {
                        "S3Uri": S3_URI,
                        "S3DataType": "S3Object",
                        "CompressionType": "None",
                    },
                }
            ],
        ),
        model(
            "metrics of the container's own endpoints",
            "ContainerMetricsConfig",
            ContainerMetricsConfig={"MetricsEndpoints": [{"MetricsEndpointPath": "/metrics"}]},
        ),
        source(
            "models of a hub",
            "HubAccessConfig",
            HubAccessConfig={"HubContentArn": HUB_MODEL},
        ),
        source("manifests of model data", "ManifestS3Uri", ManifestS3Uri=S3_URI),
        source("a chosen ETag of model data", "ETag", ETag="0" * 32),
        model("models compiled by Neo", "neo", Image="sagemaker-neo-pytorch:1.8"),
        model(
            "images for Inferentia and Trainium", "neuron", Image="pytorch-inference-neuronx:2.1"
        ),
        model("images for Elastic Inference", "eia", Image="tensorflow-inference-eia:2.3"),
        model("images for training, as models", "training", Image="pytorch-training:2.1"),
        model(
            "language model servers of AWS's images, without a command or Docker",
            "Text Generation Inference",
            Image="huggingface-pytorch-tgi-inference:2.1",
        ),
    ),
    "Endpoints": (
        config(
            "inference components",
            "inference component",
            {
                "ModelName": None,
                "ManagedInstanceScaling": {
                    "Status": "ENABLED",
                    "MinInstanceCount": 1,
                    "MaxInstanceCount": 2,
                },
            },
            ExecutionRoleArn=ROLE,
        ),
        config(
            "data capture of calls",
            "DataCaptureConfig",
            DataCaptureConfig={
                "EnableCapture": True,
                "InitialSamplingPercentage": 100,
                "DestinationS3Uri": "s3://unsupported/capture",
                "CaptureOptions": [{"CaptureMode": "Input"}],
            },
        ),
        config(
            "explanations",
            "ExplainerConfig",
            ExplainerConfig={
                "ClarifyExplainerConfig": {
                    "ShapConfig": {"ShapBaselineConfig": {"ShapBaseline": "1"}}
                }
            },
        ),
        config(
            "enhanced metrics",
            "EnableEnhancedMetrics",
            MetricsConfig={"EnableEnhancedMetrics": True},
        ),
        config(
            "routing by prefix",
            "PREFIX_AWARE",
            {"RoutingConfig": {"RoutingStrategy": "PREFIX_AWARE"}},
        ),
        config(
            "a length of prefix for routing",
            "PrefixAwareRoutingConfig",
            {
                "RoutingConfig": {
                    "RoutingStrategy": "RANDOM",
                    "PrefixAwareRoutingConfig": {"PrefixLength": 1},
                }
            },
        ),
        config(
            "traffic across regions",
            "CrossRegionTrafficConfig",
            CrossRegionTrafficConfig={
                "MaxInvocationsPerSecondPerInstance": 1,
                "MaxCrossRegionPercentPerEndpoint": 1,
            },
        ),
        config(
            "parts of accelerators",
            "AcceleratorPartitionLayouts",
            {"AcceleratorPartitionLayouts": [{"AcceleratorPartitionTypes": ["mig-1g.5gb"]}]},
        ),
        config(
            "several instance types of a variant",
            "InstancePools",
            {
                "InstanceType": None,
                "InstancePools": [{"InstanceType": "ml.m5.large", "Priority": 1}],
            },
        ),
        config("Elastic Inference", "AcceleratorType", {"AcceleratorType": "ml.eia2.medium"}),
        config(
            "core dumps",
            "CoreDumpConfig",
            {"CoreDumpConfig": {"DestinationS3Uri": "s3://unsupported/core"}},
        ),
        update(
            "canary updates",
            "CANARY",
            **traffic("CANARY", CanarySize=HALF),
        ),
        update("linear updates", "LINEAR", **traffic("LINEAR", LinearStepSize=HALF)),
        update(
            "rolling updates",
            "RollingUpdatePolicy",
            RollingUpdatePolicy={"MaximumBatchSize": HALF, "WaitIntervalInSeconds": 60},
        ),
        update(
            "rollback on alarms",
            "AutoRollbackConfiguration",
            **traffic("ALL_AT_ONCE"),
            AutoRollbackConfiguration={"Alarms": [{"AlarmName": "alarm"}]},
        ),
    ),
    "Invocations": (
        invoke("explanations", "EnableExplanations", EnableExplanations="`true`"),
        invoke("routing by prefix", "PrefixAwareId", PrefixAwareId="id"),
        invoke("inference components", "inference component", InferenceComponentName="component"),
    ),
    "Training jobs": (
        training("Pipe mode", "Pipe", AlgorithmSpecification={"TrainingInputMode": "Pipe"}),
        training(
            "algorithms of the marketplace",
            "AlgorithmName",
            AlgorithmSpecification={"TrainingImage": None, "AlgorithmName": "algorithm"},
        ),
        training(
            "images of private registries",
            "TrainingRepositoryAuthConfig",
            AlgorithmSpecification={
                "TrainingImageConfig": {
                    "TrainingRepositoryAccessMode": "Vpc",
                    "TrainingRepositoryAuthConfig": {
                        "TrainingRepositoryCredentialsProviderArn": (
                            "arn:aws:lambda:us-east-1:000000000000:function:f"
                        )
                    },
                }
            },
        ),
        training(
            "groups of different instances",
            "InstanceGroups",
            ResourceConfig={
                "InstanceType": None,
                "InstanceCount": None,
                "InstanceGroups": [
                    {"InstanceType": "ml.m5.large", "InstanceCount": 1, "InstanceGroupName": "g"}
                ],
            },
        ),
        training(
            "a choice of instance types",
            "InstancePreferences",
            ResourceConfig={
                "InstanceType": None,
                "InstancePreferences": [{"InstanceType": "ml.m5.large"}],
            },
        ),
        training(
            "training plans",
            "TrainingPlanArn",
            ResourceConfig={
                "TrainingPlanArn": "arn:aws:sagemaker:us-east-1:000000000000:training-plan/p"
            },
        ),
        training(
            "placement of instances on UltraServers",
            "InstancePlacementConfig",
            ResourceConfig={"InstancePlacementConfig": {"EnableMultipleJobs": True}},
        ),
        channel(
            "file systems as input",
            "FileSystemDataSource",
            FileSystemDataSource={
                "FileSystemId": "fs-0123456789a",
                "FileSystemAccessMode": "ro",
                "FileSystemType": "EFS",
                "DirectoryPath": "/data",
            },
        ),
        channel(
            "data sets as input",
            "DatasetSource",
            DatasetSource={"DatasetArn": f"{HUB}/DataSet/d/1.0.0"},
        ),
        channel("conversations as input", "Converse", S3DataSource=of_s3(S3DataType="Converse")),
        channel(
            "gated models as input",
            "ModelAccessConfig",
            S3DataSource=of_s3(ModelAccessConfig={"AcceptEula": True}),
        ),
        channel(
            "models of a hub as input",
            "HubAccessConfig",
            S3DataSource=of_s3(HubAccessConfig={"HubContentArn": HUB_MODEL}),
        ),
        training(
            "serverless jobs",
            "ServerlessJobConfig",
            ServerlessJobConfig={
                "BaseModelArn": HUB_MODEL,
                "JobType": "FineTuning",
            },
        ),
        training(
            "model packages of jobs",
            "ModelPackageConfig",
            ModelPackageConfig={
                "ModelPackageGroupArn": (
                    "arn:aws:sagemaker:us-east-1:000000000000:model-package-group/g"
                )
            },
        ),
    ),
    "Transform jobs": (
        transform("augmented manifests", "AugmentedManifestFile"),
        transform("conversations as input", "Converse"),
    ),
    "Application Auto Scaling": (
        target(
            "inference components",
            "inference-component",
            ResourceId="inference-component/c",
            ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
        ),
        target(
            "services other than SageMaker",
            "ecs",
            ServiceNamespace="ecs",
            ResourceId="service/c/s",
            ScalableDimension="ecs:service:DesiredCount",
        ),
        Unsupported(
            "predictive scaling",
            "application-autoscaling",
            "PutScalingPolicy",
            {
                "PolicyName": "other",
                "ServiceNamespace": "sagemaker",
                "ResourceId": "endpoint/unsupported/variant/main",
                "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
                "PolicyType": "PredictiveScaling",
                "PredictiveScalingPolicyConfiguration": {
                    "MetricSpecifications": [
                        {
                            "TargetValue": 1.0,
                            "PredefinedMetricPairSpecification": {
                                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                            },
                        }
                    ]
                },
            },
            "PredictiveScaling",
        ),
        Unsupported(
            "forecasts",
            "application-autoscaling",
            "GetPredictiveScalingForecast",
            {
                "PolicyName": "other",
                "ServiceNamespace": "sagemaker",
                "ResourceId": "endpoint/unsupported/variant/main",
                "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
                "StartTime": 1,
                "EndTime": 2,
            },
            "predictive scaling",
        ),
    ),
    "CloudWatch": (
        alarm(
            "alarms on PromQL",
            "EvaluationCriteria",
            EvaluationCriteria={"PromQLCriteria": {"Query": "up"}},
            EvaluationInterval=60,
            Namespace=None,
            MetricName=None,
            Statistic=None,
            Period=None,
            EvaluationPeriods=None,
            Threshold=None,
            ComparisonOperator=None,
        ),
        alarm(
            "anomaly detection",
            "ThresholdMetricId",
            ThresholdMetricId="band",
            ComparisonOperator="GreaterThanUpperThreshold",
            Namespace=None,
            MetricName=None,
            Statistic=None,
            Period=None,
            Threshold=None,
            Metrics=[
                {
                    "Id": "m",
                    "MetricStat": {
                        "Metric": {"Namespace": "N", "MetricName": "M"},
                        "Period": 60,
                        "Stat": "Sum",
                    },
                },
                {"Id": "band", "Expression": "ANOMALY_DETECTION_BAND(m, 2)"},
            ],
        ),
        alarm(
            "Lambda functions as actions of alarms",
            "lambda",
            AlarmActions=["arn:aws:lambda:us-east-1:000000000000:function:f"],
        ),
        alarm(
            "warm-up times of alarms",
            "WarmUpConfiguration",
            WarmUpConfiguration={"WarmUpPeriodDurationInMinutes": 5},
        ),
        Unsupported(
            "metrics of entities",
            "cloudwatch",
            "PutMetricData",
            {
                "Namespace": "N",
                "EntityMetricData": [
                    {
                        "Entity": {"KeyAttributes": {"Type": "Service", "Name": "s"}},
                        "MetricData": [{"MetricName": "M", "Value": 1.0}],
                    }
                ],
            },
            "EntityMetricData",
        ),
        Unsupported(
            "values of other accounts",
            "cloudwatch",
            "GetMetricData",
            {
                "MetricDataQueries": [
                    {
                        "Id": "m",
                        "AccountId": "111111111111",
                        "MetricStat": {
                            "Metric": {"Namespace": "N", "MetricName": "M"},
                            "Period": 60,
                            "Stat": "Sum",
                        },
                    }
                ],
                "StartTime": 0,
                "EndTime": 3600,
            },
            "metrics of the account",
        ),
        Unsupported(
            "lists of metrics of other accounts",
            "cloudwatch",
            "ListMetrics",
            {"OwningAccount": "111111111111"},
            "OwningAccount",
        ),
        Unsupported(
            "times in dynamic labels",
            "cloudwatch",
            "GetMetricData",
            {
                "StartTime": 0,
                "EndTime": 60,
                "MetricDataQueries": [
                    {"Id": "e", "Expression": "TIME_SERIES(1)", "Label": "${MAX_TIME}"}
                ],
            },
            "${MAX_TIME}",
        ),
    ),
    "CloudWatch Logs": (
        Unsupported(
            "filter patterns over JSON",
            "logs",
            "FilterLogEvents",
            {
                "logGroupName": "/aws/sagemaker/Endpoints/unsupported",
                "filterPattern": "{ $.a = 1 }",
            },
            "filter patterns",
        ),
    ),
    "SNS": (
        Unsupported(
            "FIFO topics",
            "sns",
            "CreateTopic",
            {"Name": "other.fifo", "Attributes": {"FifoTopic": "true"}},
            "FIFO",
        ),
        subscription("sms", "+15550100"),
        subscription(
            "application", "arn:aws:sns:us-east-1:000000000000:endpoint/GCM/app/0123456789"
        ),
        subscription("lambda", "arn:aws:lambda:us-east-1:000000000000:function:f"),
        subscription("firehose", "arn:aws:firehose:us-east-1:000000000000:deliverystream/s"),
        Unsupported(
            "text messages",
            "sns",
            "Publish",
            {"PhoneNumber": "+15550100", "Message": "x"},
            "PhoneNumber",
        ),
        Unsupported(
            "data protection policies",
            "sns",
            "CreateTopic",
            {"Name": "other", "DataProtectionPolicy": "{}"},
            "DataProtectionPolicy",
        ),
        topic(
            "archives of messages", "ArchivePolicy", ArchivePolicy='{"MessageRetentionPeriod": 1}'
        ),
        topic("logs of deliveries", "HTTPSuccessFeedbackRoleArn", HTTPSuccessFeedbackRoleArn=ROLE),
    ),
    "SQS": (
        Unsupported(
            "FIFO queues",
            "sqs",
            "CreateQueue",
            {"QueueName": "other.fifo", "Attributes": {"FifoQueue": "true"}},
            "FIFO",
        ),
        Unsupported(
            "repeated receives of FIFO queues",
            "sqs",
            "ReceiveMessage",
            {
                "QueueUrl": "http://127.0.0.1/000000000000/unsupported",
                "ReceiveRequestAttemptId": "a",
            },
            "ReceiveRequestAttemptId",
        ),
    ),
    "EventBridge": (
        Unsupported(
            "scheduled rules",
            "events",
            "PutRule",
            {"Name": "other", "ScheduleExpression": "rate(1 hour)"},
            "ScheduleExpression",
        ),
        event_target(
            "Lambda functions and other targets than topics, queues, URLs and API destinations",
            "lambda",
            Arn="arn:aws:lambda:us-east-1:000000000000:function:f",
        ),
        event_target(
            "parameters of other targets", "SqsParameters", SqsParameters={"MessageGroupId": "g"}
        ),
        connection(
            "OAuth connections", "OAUTH_CLIENT_CREDENTIALS", "OAUTH_CLIENT_CREDENTIALS", auth=OAUTH
        ),
        connection(
            "body parameters of connections",
            "BodyParameters",
            auth={
                "InvocationHttpParameters": {
                    "BodyParameters": [{"Key": "a", "Value": "b", "IsValueSecret": False}]
                }
            },
        ),
        connection(
            "private connectivity",
            "InvocationConnectivityParameters",
            InvocationConnectivityParameters={
                "ResourceParameters": {"ResourceConfigurationArn": RESOURCE}
            },
        ),
        connection("keys of KMS for connections", "KmsKeyIdentifier", KmsKeyIdentifier="key"),
    ),
    "S3": (
        put(
            "versions",
            "PutBucketVersioning",
            "PutBucketVersioning",
            VersioningConfiguration={"Status": "Enabled"},
        ),
        put(
            "default encryption by KMS",
            "kms",
            "PutBucketEncryption",
            ServerSideEncryptionConfiguration={
                "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
            },
        ),
        put(
            "client-provided keys (SSE-C)",
            "customer",
            SSECustomerAlgorithm="AES256",
            SSECustomerKey="k" * 32,
        ),
        put("archives that are read after hours", "GLACIER", StorageClass="GLACIER"),
        put("grants", "grant", GrantRead='id="a"'),
        put("object locks", "object-lock", ObjectLockLegalHoldStatus="ON"),
        put("appends", "write-offset", WriteOffsetBytes=0),
    ),
}
"""by section of the page"""
