# The image of the relay; the same binary is the emulated WAN link of the laptop demo. Built in the folder relay/.
ARG RUST_IMAGE=rust:1-slim-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim

FROM ${RUST_IMAGE} AS build
# Dependencies first: a change of the source does not build them again.
COPY Cargo.toml Cargo.lock /relay/
RUN mkdir /relay/src \
    && echo 'fn main() {}' >/relay/src/main.rs \
    && touch /relay/src/lib.rs \
    && cargo build --release --locked --quiet --manifest-path /relay/Cargo.toml
COPY src/ /relay/src/
RUN touch /relay/src/main.rs /relay/src/lib.rs \
    && cargo build --release --locked --quiet --manifest-path /relay/Cargo.toml

FROM ${DEBIAN_IMAGE}
LABEL org.opencontainers.image.title="shardflow-relay" \
      org.opencontainers.image.description="ShardFlow's relay: joins named TCP streams, and an emulated link for tests" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001
ENTRYPOINT ["shardflow-relay"]
CMD ["serve"]
COPY --from=build /relay/target/release/shardflow-relay /usr/local/bin/shardflow-relay
