"""Each fold of a seed has its own initial weights, training lists and dropout, as the paper's folds have."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rerank.cli.main import main
from rerank.config import Config, ListsSettings, TrainingSettings
from rerank.data.folds import fold_seed
from rerank.experiments.train import open_experiment
from tests.support.small_collection import command

NO_STEPS = ["--epochs", "1", "--lr", "0", "--training.head-lr", "0"]
"""With these a checkpoint has the weights that its training began with."""


def initial_weights(experiment, folds, name):
    files = [Path(f"runs/{experiment}/fold{fold}/checkpoint/model.safetensors") for fold in folds]
    return [load_file(file)[name] for file in files]


def all_differ(tensors):
    return not any(torch.equal(a, b) for a, b in itertools.combinations(tensors, 2))


def test_seeds_of_folds_are_those_of_every_machine():
    found = [fold_seed(*of) for of in ((0, "1"), (0, "2"), (1, "1"))]
    assert found == [26110817016874400, 23744603369542322, 574480093218597]


def test_the_head_of_a_cross_encoder_is_another_one_in_each_fold(here):
    main(command("--fold", "all", *NO_STEPS))
    main(command("--fold", "1", *NO_STEPS, "--name", "again"))
    main(command("--fold", "1", *NO_STEPS, "--name", "other", "--seed", "1"))
    heads = initial_weights("towns/smoothi", "123", "classifier.weight")
    assert all_differ([*heads, *initial_weights("towns/other", "1", "classifier.weight")])
    assert torch.equal(heads[0], *initial_weights("towns/again", "1", "classifier.weight"))


def test_the_network_of_feature_vectors_is_another_one_in_each_fold(letor):
    words = ["train", "--config", "mq2008", "--collection", "letor", "--network.hidden", "4", "--fold", "all"]
    main([*words, "--epochs", "1", "--lr", "0"])
    assert all_differ(initial_weights("letor/smoothi", "12345", "hidden_layer.weight"))


@pytest.mark.parametrize("lists", [ListsSettings(1, 1), ListsSettings("all", "all")])
def test_the_same_queries_give_other_lists_and_other_dropout_in_a_fold_of_another_name(here, lists):
    training = TrainingSettings(lists_per_epoch="all", device="cpu")
    experiment = open_experiment(Config(collection="towns", encoder="encoder", lists=lists, training=training), "1")
    (fold,) = experiment.dataset.folds
    tasks = [experiment.dataset.task(replace(fold, name=name), experiment.accelerator) for name in ("1", "1", "2")]
    first, same, other = (task.training_lists(0) for task in tasks)
    assert first == same != other
    assert {found.query_id for found in first} == {found.query_id for found in other}
    assert tasks[0].training.seed == tasks[1].training.seed != tasks[2].training.seed  # of dropout
