"""The operations of the sagemaker service, by name."""

from sagehen.frame.context import Operation
from sagehen.services.sagemaker.hosting.definitions import (
    create_endpoint_config,
    create_model,
    delete_endpoint_config,
    delete_model,
    describe_endpoint_config,
    describe_model,
    list_endpoint_configs,
    list_models,
)
from sagehen.services.sagemaker.hosting.endpoints import (
    create_endpoint,
    delete_endpoint,
    describe_endpoint,
    list_endpoints,
    update_endpoint,
    update_endpoint_weights_and_capacities,
)
from sagehen.services.sagemaker.tags import add_tags, delete_tags, list_tags
from sagehen.services.sagemaker.training.creation import create_training_job
from sagehen.services.sagemaker.training.operations import (
    delete_training_job,
    describe_training_job,
    list_training_jobs,
    stop_training_job,
    update_training_job,
)
from sagehen.services.sagemaker.transform.creation import create_transform_job
from sagehen.services.sagemaker.transform.operations import (
    describe_transform_job,
    list_transform_jobs,
    stop_transform_job,
)

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation] = {
    "CreateModel": create_model,
    "DescribeModel": describe_model,
    "ListModels": list_models,
    "DeleteModel": delete_model,
    "CreateEndpointConfig": create_endpoint_config,
    "DescribeEndpointConfig": describe_endpoint_config,
    "ListEndpointConfigs": list_endpoint_configs,
    "DeleteEndpointConfig": delete_endpoint_config,
    "CreateEndpoint": create_endpoint,
    "DescribeEndpoint": describe_endpoint,
    "ListEndpoints": list_endpoints,
    "DeleteEndpoint": delete_endpoint,
    "UpdateEndpoint": update_endpoint,
    "UpdateEndpointWeightsAndCapacities": update_endpoint_weights_and_capacities,
    "CreateTrainingJob": create_training_job,
    "DescribeTrainingJob": describe_training_job,
    "ListTrainingJobs": list_training_jobs,
    "UpdateTrainingJob": update_training_job,
    "StopTrainingJob": stop_training_job,
    "DeleteTrainingJob": delete_training_job,
    "CreateTransformJob": create_transform_job,
    "DescribeTransformJob": describe_transform_job,
    "ListTransformJobs": list_transform_jobs,
    "StopTransformJob": stop_transform_job,
    "AddTags": add_tags,
    "ListTags": list_tags,
    "DeleteTags": delete_tags,
}
