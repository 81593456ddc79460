"""The laboratory: what every experiment is made of, from the registry and the runner to records, scores and figures.

It knows no experiment. Begin with ``_registry.py``, which says what an experiment is, then ``_runner.py``.
"""

from gaussify.experiments._lab._figures import draw_band as draw_band
from gaussify.experiments._lab._figures import draw_bars as draw_bars
from gaussify.experiments._lab._figures import draw_grid as draw_grid
from gaussify.experiments._lab._figures import legend_below as legend_below
from gaussify.experiments._lab._labelling import labels_needed as labels_needed
from gaussify.experiments._lab._labelling import make_pool as make_pool
from gaussify.experiments._lab._methods import ALPHA_EPS as ALPHA_EPS
from gaussify.experiments._lab._methods import LOSSES as LOSSES
from gaussify.experiments._lab._methods import MATCHED as MATCHED
from gaussify.experiments._lab._methods import REGRESSION as REGRESSION
from gaussify.experiments._lab._methods import choices as choices
from gaussify.experiments._lab._methods import combinations as combinations
from gaussify.experiments._lab._methods import given_alpha_eps as given_alpha_eps
from gaussify.experiments._lab._methods import seeded_tasks as seeded_tasks
from gaussify.experiments._lab._records import Record as Record
from gaussify.experiments._lab._records import read_records as read_records
from gaussify.experiments._lab._records import write_records as write_records
from gaussify.experiments._lab._registry import Experiment as Experiment
from gaussify.experiments._lab._registry import Settings as Settings
from gaussify.experiments._lab._registry import Task as Task
from gaussify.experiments._lab._registry import all_experiments as all_experiments
from gaussify.experiments._lab._registry import get as get
from gaussify.experiments._lab._registry import presets as presets
from gaussify.experiments._lab._registry import register as register
from gaussify.experiments._lab._runner import TaskFailedError as TaskFailedError
from gaussify.experiments._lab._runner import load as load
from gaussify.experiments._lab._runner import result_folder as result_folder
from gaussify.experiments._lab._runner import run as run
from gaussify.experiments._lab._runner import task_seed as task_seed
from gaussify.experiments._lab._scores import scores as scores
from gaussify.experiments._lab._scratch import scratch_folder as scratch_folder
from gaussify.experiments._lab._splits import SIZES as SIZES
from gaussify.experiments._lab._splits import Split as Split
from gaussify.experiments._lab._splits import four_classes as four_classes
from gaussify.experiments._lab._splits import load_rows as load_rows
from gaussify.experiments._lab._splits import make_split as make_split
from gaussify.experiments._lab._summaries import Curve as Curve
from gaussify.experiments._lab._summaries import best_alpha_eps as best_alpha_eps
from gaussify.experiments._lab._summaries import by as by
from gaussify.experiments._lab._summaries import chosen as chosen
from gaussify.experiments._lab._summaries import column as column
from gaussify.experiments._lab._summaries import curve as curve
from gaussify.experiments._lab._summaries import group as group
from gaussify.experiments._lab._summaries import mean as mean
from gaussify.experiments._lab._summaries import mean_and_error as mean_and_error
from gaussify.experiments._lab._summaries import means as means
from gaussify.experiments._lab._summaries import select as select
from gaussify.experiments._lab._summaries import significant as significant
from gaussify.experiments._lab._summaries import summary as summary
