"""Model selection with scikit-learn: X is an array of node ids.

python examples/scikit_learn.py
"""

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import fastgcn

graph = fastgcn.load("digits")
train, test = graph.split.train, graph.split.test
labels = np.array(graph.class_names)[graph.labels]
classifier = fastgcn.FastGCNClassifier(graph, preset="fast", epochs=4, threads=1)

scores = cross_val_score(classifier, train, labels[train], cv=2, scoring="f1_macro")
print("macro-F1 of two folds:", scores.round(3))

search = GridSearchCV(classifier, {"hidden": [8, 64]}, cv=2).fit(train, labels[train])
print("best:", search.best_params_, "test accuracy:", round(search.score(test, labels[test]), 3))

calibrated = CalibratedClassifierCV(classifier, cv=2).fit(train, labels[train])
print("calibrated probabilities:", calibrated.predict_proba(test[:2]).round(2).max(axis=1))

# The hidden rows of the network as features for something else.
pipeline = make_pipeline(classifier, LogisticRegression(max_iter=100))
pipeline.fit(train, labels[train])
print(classification_report(labels[test], pipeline.predict(test), digits=3))
