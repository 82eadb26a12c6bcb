"""The same tables at the scale of a cluster: a data source for Spark, the bulk job and the questions."""
