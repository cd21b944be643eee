"""The trained model as a service: export, a server with TF Serving's contract, and a client."""
