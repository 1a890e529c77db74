# redlatch in an image of its own: one static binary, under two names, and its licenses.
#
#   docker build -t redlatch .
#   docker run --rm -p 127.0.0.1:6379:6379 redlatch
#
# On Alpine, Rust's own target is musl, and what it builds is static.

ARG RUST_VERSION=1.95

FROM rust:${RUST_VERSION}-alpine AS build
# The C compiler is for Lua and TLS.
RUN apk add --no-cache gcc musl-dev
WORKDIR /source
COPY . .
# Packages and object files are kept between builds; the binary alone goes on.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --bin redlatch \
    && mkdir -p /image/usr/local/bin /image/usr/share/licenses/redlatch \
    && cp target/release/redlatch /image/usr/local/bin/ \
    && ln -s redlatch /image/usr/local/bin/redis-server \
    && cp LICENSE-APACHE LICENSE-MIT /image/usr/share/licenses/redlatch/

FROM scratch
COPY --from=build /image /
# Nobody in particular. A number: there is no /etc/passwd, and who forbids root can see that it is not root.
USER 65532:65532
# Whoever the container's published ports let in is let in, as with the image of Redis: set a password, or publish the
# port to 127.0.0.1 only.
ENV PATH=/usr/local/bin \
    REDLATCH_BIND=0.0.0.0 \
    REDLATCH_PROTECTED_MODE=no
EXPOSE 6379
HEALTHCHECK --interval=10s --timeout=3s --start-period=1s --retries=3 CMD ["redlatch", "health"]
# Not an entry point: `docker run redlatch redis-server --port 7000` is what people write for the image of Redis.
CMD ["redlatch"]
