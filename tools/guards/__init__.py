"""The guards that exactly-once depends on: how to disable each guard, and the tests that must then fail.

``tools/mutants.py`` tries the guards; ``tests/unit/project/test_guards.py`` compares the list with the sources.
"""

from tools.guards.at_the_start import AT_THE_START, ON_THE_MOVE, VERIFYING
from tools.guards.by_the_index_of_keys import BY_THE_INDEX_OF_KEYS
from tools.guards.guard import Guard
from tools.guards.in_the_commit import IN_THE_COMMIT
from tools.guards.of_a_batch import BEFORE_THE_COMMIT, DEAD_LETTERS
from tools.guards.of_a_database import IN_A_DATABASE
from tools.guards.of_a_delta_table import IN_A_DELTA_TABLE
from tools.guards.of_a_pause import IN_A_PAUSE
from tools.guards.of_a_topic import IN_A_TOPIC
from tools.guards.of_an_index import IN_AN_INDEX
from tools.guards.of_routes import ON_ROUTES
from tools.guards.of_the_fast_path import ON_THE_FAST_PATH

__all__ = ["GUARDS", "Guard"]

GUARDS = (
    *AT_THE_START,
    *ON_THE_MOVE,
    *VERIFYING,
    *IN_THE_COMMIT,
    *BEFORE_THE_COMMIT,
    *DEAD_LETTERS,
    *IN_A_PAUSE,
    *IN_A_DATABASE,
    *IN_A_DELTA_TABLE,
    *IN_A_TOPIC,
    *IN_AN_INDEX,
    *BY_THE_INDEX_OF_KEYS,
    *ON_THE_FAST_PATH,
    *ON_ROUTES,
)
