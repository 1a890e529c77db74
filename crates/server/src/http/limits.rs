//! The limits of HTTP, each with its reason. The number of connections is in `limits` of the crate.

use std::time::Duration;

/// Bytes of a request line with its headers. Browsers and scrapers send about 1 KiB; proxies add cookies and forwarding.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;

pub(super) const HEADERS_MAX: usize = 64;

/// Bytes of a request's body. The largest that any route reads is a lock's name with a token.
pub(super) const BODY_BYTES_MAX: usize = 16 * 1024;

/// How long a connection may be idle before a request, and how long the request may take to arrive up to its body. Longer
/// than Prometheus' usual 15 seconds between scrapes, so that these keep their connection.
pub(super) const HEAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long the body of a request may take to arrive.
pub(super) const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a peer may leave bytes unread before its connection is closed. Buffers of the kernel come first.
pub(super) const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Bytes that hyper keeps for a connection in each direction; at least [`HEAD_BYTES_MAX`].
pub(super) const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Requests that may be on blocking threads at the same time: scrapes, and commands that take long.
pub(super) const BLOCKING_MAX: usize = 2;

const _: () = assert!(HEAD_BYTES_MAX <= BUFFER_BYTES_MAX, "a head of the greatest size fits the buffer");
