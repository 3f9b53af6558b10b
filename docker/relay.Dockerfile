# The image of the relay; the same binary is the emulated WAN link of the laptop demo.
ARG RUST_IMAGE=rust:1-slim-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim

FROM ${RUST_IMAGE} AS build
WORKDIR /src
# Dependencies first: a change of the source does not build them again.
COPY relay/Cargo.toml relay/Cargo.lock ./
RUN mkdir src \
    && echo 'fn main() {}' >src/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked --quiet
COPY relay/src/ src/
RUN touch src/main.rs src/lib.rs && cargo build --release --locked --quiet

FROM ${DEBIAN_IMAGE}
LABEL org.opencontainers.image.title="shardflow-relay" \
      org.opencontainers.image.description="ShardFlow's relay: joins named TCP streams, and an emulated link for tests" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /src/target/release/shardflow-relay /usr/local/bin/shardflow-relay
USER 10001:10001
ENTRYPOINT ["shardflow-relay"]
CMD ["serve"]
