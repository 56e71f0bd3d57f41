"""Models to try dayfly with: one family a file, each model a list of layers (`nn.Sequential`).

`MODELS` has them by name, with what they take and give; `layer_sizes` tells the size of each layer
of any of them.
"""

from __future__ import annotations

from dayfly.models.activations import LayerSize, layer_sizes
from dayfly.models.amoebanet_d import amoebanet_d, amoebanet_d18, amoebanet_d36
from dayfly.models.convolutional import (
    alexnet,
    digits_cnn,
    lenet5,
    mobilenet_v1,
    mobilenet_v1_32,
    mobilenet_v2,
    squeezenet,
    vgg16,
    vgg19,
)
from dayfly.models.data import cifar10, cola, higgs, imdb, mnist, squad, write_arrays, yfcc
from dayfly.models.linear import (
    hinge_loss,
    linear_svm,
    logistic_loss,
    logistic_regression,
    sign_accuracy,
    wide_mlp,
)
from dayfly.models.masking import MaskWords, masked_words_step
from dayfly.models.registry import MODELS, Entry, on_meta, parameters_of
from dayfly.models.resnet import (
    resnet18,
    resnet18_32,
    resnet32,
    resnet34,
    resnet50,
    resnet50_32,
    resnet101,
    resnet152,
)
from dayfly.models.transformers import bert, bert_base, bert_large, gpt

__all__ = [
    "MODELS",
    "Entry",
    "LayerSize",
    "MaskWords",
    "alexnet",
    "amoebanet_d",
    "amoebanet_d18",
    "amoebanet_d36",
    "bert",
    "bert_base",
    "bert_large",
    "cifar10",
    "cola",
    "digits_cnn",
    "gpt",
    "higgs",
    "hinge_loss",
    "imdb",
    "layer_sizes",
    "lenet5",
    "linear_svm",
    "logistic_loss",
    "logistic_regression",
    "masked_words_step",
    "mnist",
    "mobilenet_v1",
    "mobilenet_v1_32",
    "mobilenet_v2",
    "on_meta",
    "parameters_of",
    "resnet18",
    "resnet18_32",
    "resnet32",
    "resnet34",
    "resnet50",
    "resnet50_32",
    "resnet101",
    "resnet152",
    "sign_accuracy",
    "squad",
    "squeezenet",
    "vgg16",
    "vgg19",
    "wide_mlp",
    "write_arrays",
    "yfcc",
]
