"""The frameworks of the SDK 3, which its pickles name."""

from enum import Enum


class Framework(Enum):
    XGBOOST = "XGBoost"
    LDA = "LDA"
    PYTORCH = "PyTorch"
    TENSORFLOW = "TensorFlow"
    MXNET = "MXNet"
    CHAINER = "Chainer"
    SKLEARN = "SKLearn"
    HUGGINGFACE = "HuggingFace"
    DJL = "DJL"
    SPARKML = "SparkML"
    NTM = "NTM"
    SMD = "SMD"
