"""AWS's multi-model-server with the inference toolkit on port 8080, for one model or for many.

The toolkit writes /etc/sagemaker-mms.properties, and does not start where it sees another one.
"""

from sagemaker_inference import model_server

if __name__ == "__main__":
    model_server.start_model_server()
