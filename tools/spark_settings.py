"""Write the names of Spark's settings into the package: ``python -m tools.spark_settings``, after each PySpark update.

Spark registers a setting when the class that defines the setting is loaded, so a small Java program loads the classes.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = ROOT / "src" / "lakefeed" / "config" / "spark_settings.txt"
JARS = ("core", "sql", "catalyst", "kubernetes", "yarn", "hive")
PROGRAM = r"""
import java.util.*;
import java.util.jar.*;
public class Settings {
    public static void main(String[] jars) throws Exception {
        String classes = "org/apache/spark/(internal/config/\\w+|sql/internal/(Static)?SQLConf|sql/hive/HiveUtils"
            + "|deploy/[a-z0-9/]*([Cc]onfig|package)|security/\\w+|metrics/\\w+|executor/\\w+)\\$\\.class";
        for (String jar : jars) try (JarFile file = new JarFile(jar)) {
            for (JarEntry each : Collections.list(file.entries())) if (each.getName().matches(classes)) {
                String name = each.getName().replace('/', '.').replace(".class", "");
                try { Class.forName(name); } catch (Throwable none) { }
            }
        }
        Class<?> entries = Class.forName("org.apache.spark.internal.config.ConfigEntry$");
        Object known = entries.getMethod("knownConfigs").invoke(entries.getField("MODULE$").get(null));
        new TreeSet<>(((Map<?, ?>) known).keySet()).forEach(System.out::println);
    }
}
"""


def names() -> str:
    """Return the names of Spark's settings, one per line."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    chosen = [str(path) for part in JARS for path in sorted(jars.glob(f"spark-{part}_2*.jar"))]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "Settings.java"
        program.write_text(PROGRAM, encoding="utf-8")
        command = ["java", "-cp", f"{jars}/*", str(program), *chosen]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    LISTED.write_text(names(), encoding="utf-8")
