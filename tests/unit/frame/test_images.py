import pytest

from sagehen.frame.images import Launch, find_launch, image_name, server_of_its_own, unsuited

ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("python", "python"),
        ("python:3.11", "python"),
        (f"{ECR}/sagemaker-xgboost:1.7-1", "sagemaker-xgboost"),
        (f"{ECR}/team/models/mine@sha256:{'a' * 64}", "mine"),
        (f"{ECR}/mine:v2@sha256:{'a' * 64}", "mine"),
        ("localhost:5000/mine", "mine"),
    ],
)
def test_the_name_is_the_last_part_without_tag_and_digest(image: str, name: str) -> None:
    assert image_name(image) == name


@pytest.mark.parametrize(
    ("image", "adapter"),
    [
        (f"{ECR}/sagemaker-xgboost:1.7-1", "xgboost"),
        ("811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:1", "xgboost"),
        (f"{ECR}/sagemaker-scikit-learn:1.2-1-cpu-py3", "sklearn"),
        ("my-sklearn", "sklearn"),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.3-cpu-py311", "pytorch"),
        (f"{ECR}/huggingface-pytorch-inference:2.1", "huggingface"),
        (f"{ECR}/tensorflow-inference:2.16-cpu", "tensorflow"),
        ("520713654638.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-tensorflow-serving", "tensorflow"),
        ("sagemaker-lightgbm:4.3", "lightgbm"),
        ("lightgbm", "lightgbm"),
        ("onnx", "onnx"),
        ("sagehen-onnx:1", "onnx"),
        ("sagehen-python", "python"),
        ("python:3.11", "python"),
    ],
)
def test_images_of_sagemaker_are_known_by_their_name(image: str, adapter: str) -> None:
    assert find_launch(image, {}) == Launch(adapter=adapter)
    assert unsuited(image, {}) is None


@pytest.mark.parametrize(
    "name",
    [
        "sagemaker-pytorch",
        "sagemaker-tensorflow",
        "pytorch-inference-graviton",
        "tensorflow-inference-graviton",
        "huggingface-tensorflow-inference",
        "pytorch",
        "tensorflow",
        "huggingface",
    ],
)
def test_inference_images_of_the_frameworks_are_stood_in_for(name: str) -> None:
    assert unsuited(f"{ECR}/{name}:1", {}) is None
    assert find_launch(f"{ECR}/{name}:1", {}) is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sagemaker-neo-pytorch", "compiled by SageMaker Neo"),
        ("sagemaker-neo-tensorflow", "compiled by SageMaker Neo"),
        ("sagemaker-inference-pytorch", "compiled by SageMaker Neo"),
        ("xgboost-neo", "compiled by SageMaker Neo"),
        ("pytorch-inference-neuron", "AWS Inferentia and Trainium"),
        ("huggingface-pytorch-inference-neuronx", "AWS Inferentia and Trainium"),
        ("pytorch-inference-eia", "Elastic Inference"),
        ("sagemaker-tensorflow-serving-eia", "Elastic Inference"),
        ("pytorch-training", "training jobs"),
        ("huggingface-pytorch-trcomp-training", "training jobs"),
        ("sagemaker-tensorflow-scriptmode", "training jobs"),
        ("sagemaker-rl-tensorflow", "training jobs"),
        ("stabilityai-pytorch-inference", "none of them"),
        ("my-pytorch-api", "none of them"),
        ("team-tensorflow", "none of them"),
        ("my-huggingface", "none of them"),
    ],
)
def test_names_that_only_sound_like_them_are_not(name: str, why: str) -> None:
    image = f"{ECR}/{name}:1.0"
    told = unsuited(image, {})
    assert told is not None
    assert why in told
    assert unsuited(image, {name: ["serve"]}) is None, "the user has said what it is"
    # A model that an older version took is started as it was.
    assert find_launch(image, {}) is not None


@pytest.mark.parametrize(
    "image", ["", "nginx", f"{ECR}/pythonic", f"xgboost.example.org/{'x' * 9}"]
)
def test_an_unknown_image_has_no_launch(image: str) -> None:
    assert find_launch(image, {}) is None


@pytest.mark.parametrize(
    ("image", "server"),
    [
        (f"{ECR}/djl-inference:0.36.0-lmi18.0.0-cu128", "DJL Serving"),
        (f"{ECR}/huggingface-pytorch-tgi-inference:2.6.0-tgi3.2.3", "Text Generation Inference"),
        (f"{ECR}/tei-cpu:2.0.1-tei1.8.2", "Text Embeddings Inference"),
        (f"{ECR}/vllm:0.11-gpu-py312", "vLLM"),
        (f"{ECR}/sagemaker-tritonserver:24.09-py3", "Triton"),
    ],
)
def test_a_server_of_its_own_is_known_and_not_stood_in_for(image: str, server: str) -> None:
    assert find_launch(image, {}) is None
    assert server_of_its_own(image) == server
    name = image_name(image)
    assert find_launch(image, {name: ["serve"]}) == Launch(command=("serve",))


def test_commands_of_the_user_win_over_what_is_built_in() -> None:
    commands = {"*xgboost*": ["serve-trees"]}
    assert find_launch(f"{ECR}/sagemaker-xgboost:1.7-1", commands) == Launch(
        command=("serve-trees",)
    )


def test_a_literal_name_wins_over_a_pattern_and_a_tag_may_be_named() -> None:
    commands = {"my-*": ["any"], "my-image": ["this"], "my-image:v2": ["second"]}
    assert find_launch("my-image:v1", commands) == Launch(command=("this",))
    assert find_launch("my-image:v2", commands) == Launch(command=("second",))
    assert find_launch("my-other", commands) == Launch(command=("any",))


def test_the_launcher_is_chosen_by_image() -> None:
    docker, process = Launch(docker=True), Launch(adapter="xgboost")
    assert find_launch("my/xgboost:1", {}, "docker") == docker
    assert find_launch("anything@sha256:00", {}, "docker") == docker
    assert find_launch("my/xgboost:1", {"xgboost": "process"}, "docker") == process
    assert find_launch("my/xgboost:1", {"my/*": "docker"}) == docker
    assert find_launch("my/tool", {"tool": ["run"]}, "docker") == Launch(command=("run",))
    assert find_launch("unknown", {"unknown": "process"}, "docker") is None


def test_an_image_that_runs_itself_is_never_unsuited() -> None:
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.1"
    assert unsuited(image, {}) is not None
    assert unsuited(image, {}, "docker") is None
    assert unsuited(image, {"pytorch-training": "docker"}) is None
    assert unsuited(image, {"*": "process"}, "docker") is not None
