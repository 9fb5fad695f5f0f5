#!/bin/bash
# Start a `driver ...` or an `executor` for Spark's operators and Spark's own scheduler; else run `lakefeed ...`.
# The arguments and variables are those of the entrypoint of Spark's own image.
set -eu

case "${1:-}" in
driver)
    shift
    # Under spark-submit the JVM gets SIGTERM first; it forwards the signal to lakefeed, which finishes the batch.
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    shift
    options=()
    for ((number = 0; ; number++)); do
        option=SPARK_JAVA_OPT_$number
        [[ -v $option ]] || break
        options+=("${!option}")
    done
    classes=${SPARK_CLASSPATH:-}:$SPARK_HOME/conf:$SPARK_HOME/jars/*
    exec tini -s -- "$JAVA_HOME/bin/java" "${options[@]}" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "${classes#:}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tini -s -- lakefeed "$@"
    ;;
esac
