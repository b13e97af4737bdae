"""The preparation of missing shards on Apache Spark: in local mode, or on the cluster that SPARK_MASTER names.

A shard is one task. The workers of a cluster must see source and destination at the same paths and have this package
installed.
"""

from __future__ import annotations

import os
import sys

from sweep.data.engine import missing, tidy
from sweep.data.prepare import Options, make_shard
from sweep.data.prepared import Prepared
from sweep.data.sources import Listing
from sweep.errors import Refused


def prepare(found: Listing, prepared: Prepared, options: Options, jobs: int) -> None:
    """Write the shards that are missing as tasks of Spark, `jobs` at a time in local mode."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise Refused("--on spark: pyspark is not installed; expected pip install 'lottery-sweep[spark]'") from None
    todo = missing(prepared)
    if todo:
        builder = SparkSession.builder.appName("lottery data prepare")
        if "SPARK_MASTER" in os.environ:
            builder = builder.master(os.environ["SPARK_MASTER"])
        else:
            # else its workers would use the first python3 on the path
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            # local mode usually fails to start because the driver listens on a host name that does not resolve
            builder = builder.master(f"local[{jobs}]").config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError, RuntimeError) as error:
            raise Refused(
                f"--on spark: it does not start ({_line(error)}); expected Java, and SPARK_MASTER if set"
            ) from None
        try:
            context = session.sparkContext
            context.setLogLevel("ERROR")
            shared = context.broadcast((found, prepared, options))
            context.parallelize(todo, len(todo)).foreach(lambda shard: make_shard(*shared.value, *shard))
        except (PySparkException, Py4JError) as error:
            raise Refused(f"--on spark: {_line(error)}; what is there stays, run again to go on") from None
        finally:
            session.stop()
    tidy(prepared)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
