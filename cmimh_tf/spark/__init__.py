"""Features, codes and indexes of many pairs, computed on Apache Spark."""
