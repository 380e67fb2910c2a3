"""The SM_* variables; the expected ones are what AWS's toolkit answered for the same files."""

import json

from sagehen.containers.training_toolkit.folders import Folders
from sagehen.containers.training_toolkit.hyperparameters import read_parameters
from sagehen.containers.training_toolkit.variables import make_variables
from support.fixtures.scriptrunner import RESOURCES


def make(job, parameters, **environ):
    return make_variables(
        Folders("/opt/ml") if job is None else Folders(str(job.base)),
        read_parameters(parameters),
        "pkg/train.py",
        20,
        environ,
    )


def test_they_are_the_toolkits(job):
    given = {
        "epochs": "3",
        "name": '"abc"',
        "sagemaker_submit_directory": '"s3://b/k"',
        "sagemaker_job_name": '"inner"',
        "sagemaker_region": '"eu-west-1"',
        "sagemaker_estimator_class_name": '"SKLearn"',
    }
    found = make(job, given, TRAINING_JOB_NAME="outer", CUDA_VISIBLE_DEVICES="0,2")
    base = str(job.base)
    texts = {
        "SM_MODEL_DIR": f"{base}/model",
        "SM_OUTPUT_DATA_DIR": f"{base}/output/data",
        "SM_OUTPUT_DIR": f"{base}/output",
        "SM_OUTPUT_INTERMEDIATE_DIR": f"{base}/output/intermediate",
        "SM_INPUT_DIR": f"{base}/input",
        "SM_INPUT_CONFIG_DIR": f"{base}/input/config",
        "SM_CHANNEL_TRAIN": f"{base}/input/data/train",
        "SM_CHANNELS": '["train"]',
        "SM_HPS": '{"epochs":3,"name":"abc"}',
        "SM_HP_EPOCHS": "3",
        "SM_HP_NAME": "abc",
        "SM_USER_ARGS": '["--epochs","3","--name","abc"]',
        "SM_USER_ENTRY_POINT": "pkg/train.py",
        "SM_MODULE_NAME": "pkg/train",
        "SM_MODULE_DIR": "s3://b/k",
        "SM_FRAMEWORK_MODULE": "",
        "SM_FRAMEWORK_PARAMS": '{"sagemaker_estimator_class_name":"SKLearn"}',
        "SM_HOSTS": '["algo-1","algo-2"]',
        "SM_CURRENT_HOST": "algo-1",
        "SM_CURRENT_INSTANCE_TYPE": "ml.m5.large",
        "SM_CURRENT_INSTANCE_GROUP_HOSTS": '["algo-1","algo-2"]',
        "SM_INSTANCE_GROUPS": '["homogeneousCluster"]',
        "SM_IS_HETERO": "false",
        "SM_NETWORK_INTERFACE_NAME": "eth0",
        "SM_INPUT_DATA_CONFIG": '{"train":{"TrainingInputMode":"File"}}',
        "SM_LOG_LEVEL": "20",
        "SM_NUM_GPUS": "2",
        "SM_NUM_NEURONS": "0",
        "SAGEMAKER_JOB_NAME": "inner",
        "SAGEMAKER_REGION": "eu-west-1",
        "CURRENT_HOST": "algo-1",
    }
    assert {name: found.get(name) for name in texts} == texts
    assert json.loads(found["SM_RESOURCE_CONFIG"]) == RESOURCES
    assert int(found["SM_NUM_CPUS"]) > 0
    described = json.loads(found["SM_TRAINING_ENV"])
    assert len(described) == 37
    assert described["job_name"] == "outer"
    assert described["hyperparameters"] == {"epochs": 3, "name": "abc"}
    assert (described["is_master"], described["master_hostname"]) == (True, "algo-1")
    assert described["distribution_hosts"] == []
