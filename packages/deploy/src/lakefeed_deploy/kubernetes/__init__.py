"""Write the Kubernetes objects of a feed, for Apache's or Kubeflow's Spark operator."""
