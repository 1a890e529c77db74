# An image of redlatch: one static binary under three names, and its licences. It is for this machine. The image to push to a registry
# is that of `packages/release.py --image`: it also has the licences of the crates, and the place of the project.
#
#   docker build -t redlatch .
#   docker run -p 127.0.0.1:6379:6379 -v redlatch:/var/lib/redlatch redlatch
#
# On Alpine, Rust's own target is musl, and what it builds is static.

# By digest: a tag may come to name another image. With a newer version, both change.
FROM rust:1.95-alpine@sha256:606fd313a0f49743ee2a7bd49a0914bab7deedb12791f3a846a34a4711db7ed2 AS build
# The C compiler is for Lua, TLS and the allocator.
RUN apk add --no-cache gcc musl-dev
WORKDIR /source
COPY . .
# Packages and object files are kept between builds; the next stage gets the binary and the licences alone.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --all-features --bin redlatch \
    && mkdir -p /image/usr/local/bin /image/usr/share/licenses/redlatch \
    && mkdir -m 700 /journal \
    && cp target/release/redlatch /image/usr/local/bin/ \
    && ln -s redlatch /image/usr/local/bin/redis-server \
    && ln -s redlatch /image/usr/local/bin/redis-cli \
    && cp LICENSE-APACHE LICENSE-MIT /image/usr/share/licenses/redlatch/

FROM scratch
LABEL org.opencontainers.image.title="redlatch" \
    org.opencontainers.image.description="A lock server that speaks the Redis protocol" \
    org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /image /
# An unprivileged user. A number, because there is no /etc/passwd, and because Kubernetes' runAsNonRoot asks for one.
USER 65532:65532
# The journal: with it, locks outlive the container. A new volume takes the owner over from the directory of the image.
COPY --from=build --chown=65532:65532 /journal /var/lib/redlatch
VOLUME /var/lib/redlatch
# The log has the lines of Redis, which tests with containers wait for.
# As in the image of Redis, protected mode is off: clients that come through a published port come from another machine.
# Set a password, or publish the port to 127.0.0.1 only.
ENV PATH=/usr/local/bin \
    REDLATCH_DIR=/var/lib/redlatch \
    REDLATCH_BIND=0.0.0.0 \
    REDLATCH_LOG_FORMAT=redis \
    REDLATCH_PROTECTED_MODE=no
EXPOSE 6379
# A clean stop: nothing is lost, and nobody waits after the next start.
STOPSIGNAL SIGTERM
# A server that runs a long script or delays logins is healthy: to restart it would end every session.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["redlatch", "health"]
# Not an entry point: `docker run redlatch redis-server --port 7000` is what people write for the image of Redis.
CMD ["redlatch"]
