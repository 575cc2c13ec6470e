"""The public names are pinned: adding or removing one is a decision, and shows up here."""

import importlib
import pkgutil
from functools import cached_property
from inspect import getdoc
from pathlib import Path
from types import FunctionType

import blindsight

PINNED = {
    "blindsight": "Guarantee Ledger Plan Privacy accounting algorithms ask asking audit backends config data errors "
    "evaluation fidelity fleet fleet_of inspect inspection jobs keys mechanisms models participation plan runs "
    "selection service students studio synthesize synthesizing training trees",
    "blindsight.accounting": "Bound Event Guarantee Relation Unit certify delta epsilon group_privacy rounds_for "
    "solve_noise split_noise",
    "blindsight.algorithms": "AdaptiveClip Algorithm PureStep State dp_fedavg",
    "blindsight.algorithms.bayesian_gan": "bayesian_gan published_noise_multipliers",
    "blindsight.algorithms.draw_and_discard": "Budget Task average client_update client_update_of discard draw "
    "guarantee informal initial_instances whole_change",
    "blindsight.algorithms.parties": "GivenGenerator GivenModel OnSynthetic OnRawData OneShot PrivateLinear "
    "PrivateNetwork TrainedPrivately VotingParty",
    "blindsight.algorithms.synthetic_votes": "Aggregated NoisyVotes aggregate majority share_noise",
    "blindsight.algorithms.synthesis": "Synthesis plan synthesise",
    "blindsight.algorithms.set_union": "CHANCE MOST_PLACES SetUnion WeighedWords join_words places_of threshold_of "
    "weigh",
    "blindsight.asking": "Cross Histogram Item Mean Missing Quantiles Top ask",
    "blindsight.audit": "AuditReport Canaries LowerBound Planted client_scores direction_clients direction_scores "
    "exposures extracted joined lower_bound ranks references secret_sharer",
    "blindsight.backends": "Backend Batch ClientUpdate Cohort Debug Examples Simulation use_cores",
    "blindsight.backends.paired": "Paired bayesian_config",
    "blindsight.config": "AuditSettings BayesianSettings ClientSettings Config DataSettings GanSettings ModelSettings "
    "PrivacySettings ServerSettings TextSettings TrainingSettings TuneSettings as_toml from_table json_schema load "
    "parse read_toml without_nulls",
    "blindsight.data": "Population by_column csv dataset dirichlet embedded fedjax_sqlite hugging_face iid "
    "image_folder jsonl leaf load npz open_population parquet pathological source table tff_hdf5 tff_sqlite",
    "blindsight.data.text": "Case END END_OF_WORD PAD START START_OF_WORD UNKNOWN Vocabulary sentences split_sentences "
    "tokens unknown_words word_bytes word_tokens",
    "blindsight.errors": "BlindsightError BudgetExceeded HostLost InvalidInput LedgerCorrupted LedgerError "
    "LedgerFromTheFuture LedgerTampered PrivacyError RelationMismatch Unanswered UnboundedContribution UnknownEvent",
    "blindsight.evaluation": "Interval by_client evaluator jackknife of_clients relative_change",
    "blindsight.fleet.noise_shares": "LEAST_BITS NoiseShares NoisedSum SiteNoise log_ratio_bound",
    "blindsight.fleet.secure_sum": "Coordinator Party Reason Refused RoundBook Rounds Signer Site Terms signer",
    "blindsight.inspect": "Diagnosis Finding Language Quarters Report Schema Session Training WordTraining bias "
    "contrast labelling mistakes sanity slices unknowns",
    "blindsight.inspection": "Inquiry Public Question Report Round Session answer",
    "blindsight.jobs": "AskRequest BiasRequest LabellingRequest MistakesRequest SanityRequest SlicesRequest "
    "SynthesizeRequest UnknownsRequest list_runs load_model load_student load_trained run_ask run_audit "
    "run_bias run_export run_labelling run_mistakes run_mlflow_export run_on_hosts run_sanity run_slices run_student "
    "run_synthesize run_training run_tuning run_unknowns",
    "blindsight.keys": "Key Stream digest_of lots reproducible root",
    "blindsight.mechanisms": "GaussianMechanism LaplaceMechanism Mechanism NoisyArgmax Quantile QuantileEstimate "
    "Release Tally Votes WithoutNoise gaussian laplace noisy_argmax publish quantile votes without_noise",
    "blindsight.models": "CNN MLP Logistic accuracy cross_entropy",
    "blindsight.models.cifg_lstm": "LanguageModel char_model next_token_loss recall token_loss word_model",
    "blindsight.models.generation": "beam_search log_probability sample",
    "blindsight.models.ngram": "NGram fit_ngram",
    "blindsight.models.glm": "FAMILIES Family gradient loss predict weights_needed",
    "blindsight.codings.specs": "AnyField BooleanField CategoryField ClientRows FeatureSpec NgramField NumberField "
    "Response field_from_dict fnv1a readable rows_from_sqlite",
    "blindsight.participation": "FixedSizeRounds Full Participation TruncatedPoissonRounds Unproven fixed_size full "
    "poisson unproven",
    "blindsight.privacy": "Plan Privacy plan",
    "blindsight.runs": "SITES Run begin create file_name find locked new_folder open_run write_whole",
    "blindsight.selection": "ASSUMED Arms Criterion FORMINGS Forming Of accuracies by_accuracy by_correctness coded "
    "correct everything mistakes observe where",
    "blindsight.service": "AsyncClient Client Running Settings running serve",
    "blindsight.students": "Augmentation Student train_student",
    "blindsight.studio": "Agreement Decision Labels Queue agreement export_annotations import_annotations majority",
    "blindsight.training": "Checkpointing Evaluation RunTerms Trained machine train",
    "blindsight.trees": "BoundedSum add clip norm scale size sub sum_clients to_grid zeros_like",
}


def test_the_public_names_are_the_pinned_ones():
    for module, names in PINNED.items():
        assert sorted(importlib.import_module(module).__all__) == sorted(names.split()), module


def test_every_module_lists_its_names_and_each_exists_and_is_documented():
    for found in pkgutil.walk_packages(blindsight.__path__, "blindsight."):
        if found.name == "blindsight.__main__":
            continue
        module = importlib.import_module(found.name)
        assert module.__doc__, found.name
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and getattr(value, "__module__", "").startswith("blindsight"):
                assert value.__doc__, f"{found.name}.{name}"


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(blindsight, "utils")


LAZY = [name for name in PINNED if Path(str(importlib.import_module(name).__file__)).with_suffix(".pyi").exists()]


def test_completion_offers_the_public_names_and_no_others():
    assert len(LAZY) >= 11
    for name in LAZY:
        assert sorted(dir(importlib.import_module(name))) == sorted(PINNED[name].split()), name


def test_completion_of_the_questions_shows_public_names_alone():
    from blindsight import inspect

    assert dir(inspect) == sorted(inspect.__all__)


def undocumented(kind: type) -> list[str]:
    """Public methods and properties of a class without a docstring of their own or of what they override."""
    if not kind.__module__.startswith((blindsight.__name__, __name__)):
        return []
    fields = getattr(kind, "__dataclass_fields__", {})
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_") and name not in fields}
    methods = FunctionType | property | cached_property | classmethod | staticmethod
    members = [name for name, value in own.items() if isinstance(value, methods)]
    return [f"{kind.__qualname__}.{name}" for name in members if not getdoc(getattr(kind, name))]


def test_every_method_of_a_public_class_is_documented():
    missing = list[str]()
    for found in pkgutil.walk_packages(blindsight.__path__, "blindsight."):
        if found.name == "blindsight.__main__":
            continue
        module = importlib.import_module(found.name)
        kinds = [getattr(module, name) for name in module.__all__]
        missing += [name for kind in kinds if isinstance(kind, type) for name in undocumented(kind)]
    assert sorted(set(missing)) == []


class _Documented:
    def told(self) -> None:
        """What it does."""

    def silent(self) -> None: ...


class _Overriding(_Documented):
    def told(self) -> None: ...

    @property
    def dumb(self) -> int: ...


def test_a_method_without_a_docstring_would_be_noticed():
    assert undocumented(_Documented) == ["_Documented.silent"]
    assert undocumented(_Overriding) == ["_Overriding.dumb"]
