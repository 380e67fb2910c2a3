"""What a container of a user must stand: scenarios count answers, and fail at a wrong one.

A request may be refused while a container is away. An answer that another model gave, or that is
not of the request, is never right.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from support.deploy import ROLE, Deployer
from support.recipes import Answer, Recipe
from support.server import eventually

__all__ = ["SCENARIOS", "Bench"]

BUCKET = "recipes"
CALLS = 20
START_SECONDS = 240


@dataclass
class Bench:
    """Endpoints of one recipe on one server; all they answered is counted."""

    deploy: Deployer
    recipe: Recipe
    answers: int = 0
    refusals: int = 0
    _names: list[str] = field(default_factory=list)
    _texts: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def model(self, model: str) -> str:
        """Creates it; the name of it among all recipes."""
        name = f"{self.recipe.name}-{model}"
        self.deploy.s3.create_bucket(Bucket=BUCKET)
        self.deploy.s3.put_object(
            Bucket=BUCKET, Key=f"{name}.tar.gz", Body=self.recipe.archive(model)
        )
        self.deploy.sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": f"000000000000.dkr.ecr.us-east-1.amazonaws.com/{self.recipe.name}:1",
                "ModelDataUrl": f"s3://{BUCKET}/{name}.tar.gz",
                "Environment": self.recipe.environment,
            },
        )
        return name

    def config(self, name: str, *models: str, instances: int = 1) -> None:
        """A variant for each model, of the model's name."""
        variants = [
            {
                "VariantName": model,
                "ModelName": f"{self.recipe.name}-{model}",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": instances,
                "InitialVariantWeight": 1,
                "ContainerStartupHealthCheckTimeoutInSeconds": START_SECONDS,
            }
            for model in models
        ]
        self.deploy.sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=variants
        )

    def endpoint(self, name: str, *models: str, instances: int = 1) -> None:
        """Begins an endpoint with a variant for each model."""
        self.config(name, *models, instances=instances)
        self.deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self._names.append(name)

    def serves(self, *names: str) -> None:
        for name in names:
            eventually(lambda name=name: self._status(name) in ("InService", "Failed"), 300)  # type: ignore[misc]
            described = self.deploy.sagemaker.describe_endpoint(EndpointName=name)
            assert described["EndpointStatus"] == "InService", described.get("FailureReason")

    def ask(self, name: str, *models: str, **target: str) -> Answer | None:
        """One answer, which must be of one of the models; None where the request was refused."""
        text = f"{name} {next(self._texts)}"
        try:
            got = self.deploy.runtime.invoke_endpoint(
                EndpointName=name,
                ContentType=self.recipe.content_type,
                Body=self.recipe.body(text),
                **target,
            )
        except ClientError:
            self.refusals += 1
            return None
        answer = self.recipe.answer(got["Body"].read())
        assert (answer.model in models, answer.text) == (True, text), f"{name} answered {answer}"
        self.answers += 1
        return answer

    def must_answer(self, name: str, *models: str, **target: str) -> Answer:
        answer = self.ask(name, *models, **target)
        assert answer is not None, f"{name} refused a request"
        return answer

    def close(self) -> None:
        for name in self._names:
            self.deploy.sagemaker.delete_endpoint(EndpointName=name)
        eventually(lambda: not any(map(self._is_there, self._names)))
        self._names.clear()

    def _status(self, name: str) -> str:
        return self.deploy.status(name)

    def _is_there(self, name: str) -> bool:
        listed = self.deploy.sagemaker.list_endpoints(NameContains=name)["Endpoints"]
        return any(each["EndpointName"] == name for each in listed)


def two_endpoints(bench: Bench) -> None:
    """Each answers with its own model, from containers that the other does not share."""
    one, two = f"{bench.recipe.name}-one", f"{bench.recipe.name}-two"
    bench.model("A"), bench.model("B")
    bench.endpoint(one, "A")
    bench.endpoint(two, "B")
    bench.serves(one, two)
    for _ in range(CALLS):
        answers = bench.must_answer(one, "A"), bench.must_answer(two, "B")
        assert answers[0].container != answers[1].container


def two_instances(bench: Bench) -> None:
    """Both answer, and are two containers."""
    name = f"{bench.recipe.name}-pair"
    bench.model("pair")
    bench.endpoint(name, "pair", instances=2)
    bench.serves(name)
    seen: set[str] = set()

    def both_answered() -> bool:
        seen.add(bench.must_answer(name, "pair").container)
        return len(seen) == 2

    eventually(both_answered)


def update(bench: Bench) -> None:
    """An update from one model to another loses no request, and gives no wrong answer."""
    name = f"{bench.recipe.name}-moved"
    bench.model("before"), bench.model("after")
    bench.endpoint(name, "before")
    bench.serves(name)
    bench.config(f"{name}-2", "after")
    with _asking(bench, name, "before", "after") as failures:
        bench.deploy.sagemaker.update_endpoint(EndpointName=name, EndpointConfigName=f"{name}-2")
        bench.serves(name)
    assert not failures, failures[0]
    assert bench.refusals == 0
    for _ in range(CALLS):
        bench.must_answer(name, "after")


def two_variants(bench: Bench) -> None:
    """An A/B test: both variants answer, and a request for one is answered by it."""
    name = f"{bench.recipe.name}-ab"
    bench.model("left"), bench.model("right")
    bench.endpoint(name, "left", "right")
    bench.serves(name)
    for variant in ("left", "right") * (CALLS // 2):
        bench.must_answer(name, variant, TargetVariant=variant)
    seen: Counter[str] = Counter()

    def both_answered() -> bool:
        seen[bench.must_answer(name, "left", "right").model] += 1
        return len(seen) == 2

    eventually(both_answered)


def killed_agent(bench: Bench) -> None:
    """After `kill -9` of the agent its endpoints come back, each with its own model."""
    one, two = f"{bench.recipe.name}-kill-one", f"{bench.recipe.name}-kill-two"
    bench.model("kept"), bench.model("other")
    bench.endpoint(one, "kept")
    bench.endpoint(two, "other")
    bench.serves(one, two)
    before = {bench.must_answer(one, "kept").container, bench.must_answer(two, "other").container}
    os.kill(bench.deploy.server.pid("agent"), signal.SIGKILL)
    for name, model in ((one, "kept"), (two, "other")):
        eventually(lambda name=name, model=model: _is_new(bench, name, model, before), 300)  # type: ignore[misc]
    for _ in range(CALLS):
        bench.must_answer(one, "kept")
        bench.must_answer(two, "other")


def _is_new(bench: Bench, name: str, model: str, before: set[str]) -> bool:
    answer = bench.ask(name, model)
    return answer is not None and answer.container not in before


@contextmanager
def _asking(bench: Bench, name: str, *models: str) -> Iterator[list[BaseException]]:
    """Asks all the while in a thread; what went wrong there."""
    over = threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not over.wait(0.05):
                bench.ask(name, *models)
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield failures
    finally:
        over.set()
        thread.join()


SCENARIOS: dict[str, Callable[[Bench], Any]] = {
    "two endpoints": two_endpoints,
    "two instances": two_instances,
    "update": update,
    "two variants": two_variants,
    "kill -9 of the agent": killed_agent,
}
