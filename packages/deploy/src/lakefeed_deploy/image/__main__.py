"""Write the bill of materials of the image in which ``python -m lakefeed_deploy.image FILE`` runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lakefeed.clients.spark.jars import read_lock
from lakefeed_deploy.image.bill import bill, installed

parts = installed(read_lock().artifacts, Path(os.environ["SPARK_HOME"], "jars"))
Path(sys.argv[1]).write_text(bill(set(parts)), "utf-8")
