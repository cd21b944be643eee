# The image that `pipeline/run_kubeflow.py --image` needs. It has not been built by us: there was no Docker engine.
FROM python:3.11-slim-bookworm
WORKDIR /app
RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make install
ENV PATH="/app/.venv/bin:$PATH"
