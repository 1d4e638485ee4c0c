"""Jobs on a Ray cluster: `jobs` is the command's side, `driver` the process that connects to the cluster."""
