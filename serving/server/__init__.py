"""A server with TF Serving's REST and gRPC contract: `python -m serving.server --model-base serving_model/cmimh`."""
