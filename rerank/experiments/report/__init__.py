"""Reports: charts and one HTML page of the experiments in runs/<collection>. Never imports torch."""
