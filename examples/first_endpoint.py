import tarfile

import boto3
import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

joblib.dump(LogisticRegression(max_iter=200).fit(*load_iris(return_X_y=True)), "model.joblib")
with tarfile.open("model.tar.gz", "w:gz") as archive:
    archive.add("model.joblib")

s3, sm, runtime = map(boto3.client, ("s3", "sagemaker", "sagemaker-runtime"))
s3.create_bucket(Bucket="demo")
s3.upload_file("model.tar.gz", "demo", "model.tar.gz")
sm.create_model(
    ModelName="iris",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/any",
    PrimaryContainer={
        "Image": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1",
        "ModelDataUrl": "s3://demo/model.tar.gz",
    },
)
variant = {"VariantName": "main", "ModelName": "iris", "InstanceType": "ml.m5.large"}
sm.create_endpoint_config(
    EndpointConfigName="iris", ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
)
sm.create_endpoint(EndpointName="iris", EndpointConfigName="iris")
sm.get_waiter("endpoint_in_service").wait(EndpointName="iris", WaiterConfig={"Delay": 1})

row = "5.1,3.5,1.4,0.2"
answer = runtime.invoke_endpoint(EndpointName="iris", ContentType="text/csv", Body=row)
print(answer["Body"].read())
