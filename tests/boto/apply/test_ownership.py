"""What is the stack's, and what is others': `sagehen apply` mends the one and leaves the other."""

from support.stacks import resource


def test_what_was_half_made_when_it_was_refused_is_the_stacks(stack):
    def topic(protocol):
        subscription = {"Protocol": protocol, "Endpoint": "http://127.0.0.1:9/x"}
        properties = {"Subscription": [subscription]}
        return {"Resources": {"T": {"Type": "AWS::SNS::Topic", "Properties": properties}}}

    assert "does not support this protocol" in stack.apply(topic("ftp"), status=1)
    stack.apply(topic("http"))
    assert "Nothing to do" in stack.apply()
    stack.delete()
    assert stack.apply(topic("ftp"), status=1)
    stack.delete()
    stack.apply(topic("http"))
    stack.delete()


def test_others_and_the_template(stack, clients):
    """What others delete is made again, what they change is mended, what is theirs is theirs."""
    sns, bucket = clients["sns"], f"{stack.name}-data"
    template = {
        "Resources": {
            "Topic": resource("SNS::Topic", {"DisplayName": "ours"}),
            "Bucket": resource("S3::Bucket", {"BucketName": bucket}),
            "Named": resource("SNS::Topic", {"TopicName": f"named-{stack.name}"}),
            "Queue": resource("SQS::Queue", {"QueueName": f"{stack.name}-queue"}),
        },
        "Outputs": {"Arn": {"Value": {"Ref": "Topic"}}},
    }
    clients["s3"].create_bucket(Bucket=bucket)
    printed = stack.apply(template, status=1)
    assert f"identifier '{bucket}' already exists, and is not the stack's" in printed
    assert stack.name not in str(sns.list_topics())
    clients["sqs"].create_queue(QueueName=f"{stack.name}-queue")
    stack.apply(template, "--adopt")
    assert "changed by somebody else" not in stack.apply()

    arn = next(
        one["TopicArn"] for one in sns.list_topics()["Topics"] if f":{stack.name}" in str(one)
    )
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="theirs")
    printed = stack.apply()
    assert 'DisplayName: "theirs" -> "ours"   (changed by somebody else)' in printed
    assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == "ours"
    sns.delete_topic(TopicArn=arn)
    assert "it is gone" in stack.apply()
    assert arn in str(sns.list_topics())

    clients["s3"].put_object(Bucket=bucket, Key="k", Body=b"precious")
    printed = stack.delete()
    assert f"The bucket {bucket} is not empty, and stays as it is." in printed
    assert clients["s3"].get_object(Bucket=bucket, Key="k")["Body"].read() == b"precious"
    assert arn not in str(sns.list_topics())
    clients["s3"].delete_object(Bucket=bucket, Key="k")
    stack.apply(template, "--adopt")
