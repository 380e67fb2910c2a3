"""`sagehen apply` and `sagehen delete`: a CloudFormation template against a running server."""
