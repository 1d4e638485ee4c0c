"""The names of files and folders in runs/: no other module knows them.

runs/<collection>/                  CollectionFolder
runs/<collection>/pretrained-<hash>/   PretrainingFolder
runs/<collection>/<experiment>/     ExperimentFolder
runs/<collection>/<experiment>/fold1/  FoldFolder
runs/<collection>/<experiment>/final/  FoldFolder, of the model to deploy
"""

from rerank.runs.layout.first_stage import bm25_name
from rerank.runs.layout.folders import CollectionFolder, ExperimentFolder, FoldFolder
from rerank.runs.layout.pretraining import PretrainingFolder

__all__ = ["CollectionFolder", "ExperimentFolder", "FoldFolder", "PretrainingFolder", "bm25_name"]
