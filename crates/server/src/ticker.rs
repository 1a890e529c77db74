//! The ticker: a task that sleeps until the next deadline and has the engine remove expired keys, in bounded batches.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use redlatch_core::keyspace::Due;

use super::context::ServerContext;
use super::testing::Membership;

/// How often the wall clock is compared with the monotonic one.
const WALL_CHECK: Duration = Duration::from_millis(500);
/// A certificate that ends sooner is warned of: two weeks are enough to get another, and most are renewed a month before.
const CERTIFICATE_MIN_SECS: u64 = 14 * SECS_A_DAY;
const SECS_A_DAY: u64 = 86_400;
/// Milliseconds between two sweeps over idle clients.
const SWEEP_MS: u64 = 500;

/// Runs until the server or its engine ends. While a test's clock stands still it only waits for SHUTDOWN, because moving
/// the clock does the due work.
pub(super) async fn run(context: ServerContext) {
    let mut swept = context.clock().now().lock;
    let mut told = (0, 0);
    loop {
        let now = context.clock().now().lock;
        if !context.is_frozen() && now.millis_since(swept) >= SWEEP_MS {
            context.engine.sweep();
            swept = now;
            told = warn_of_certificate(&context, told);
        }
        let pause = match pause(&context) {
            Some(pause) => pause,
            None => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        tokio::select! {
            () = context.stopped() => return context.stop_engine(),
            () = context.ticker().notified() => {}
            () = tokio::time::sleep(pause) => {
                if let Some(clock) = context.system_clock() {
                    clock.follow_wall();
                }
            }
        }
        if context.has_ended() {
            return;
        }
        if context.engine.shared().stop.has_begun.load(SeqCst) {
            return shut_down(&context);
        }
    }
}

/// Warns once a day, and of each new certificate, while it has ended or is about to. `told` is the end and the day of the
/// last look.
fn warn_of_certificate(context: &ServerContext, told: (u64, u64)) -> (u64, u64) {
    let shared = context.engine.shared();
    let (ends, now) = (shared.instance.certificates_end(), shared.clock.wall_micros() / 1_000_000);
    let look = (ends, now / SECS_A_DAY);
    if look != told && ends != 0 && ends < now + CERTIFICATE_MIN_SECS {
        tracing::warn!(
            left_secs = ends.saturating_sub(now),
            "The server's certificate has expired, or is about to"
        );
    }
    look
}

/// Carries out SHUTDOWN: it ends the server, or in a namespace only that.
fn shut_down(context: &ServerContext) {
    if !context.membership().is_some_and(Membership::remove) {
        context.stop();
    }
}

/// Does a batch of due work. Returns the time until the next work is due; `None` if more is due now.
fn pause(context: &ServerContext) -> Option<Duration> {
    if context.is_frozen() {
        return Some(Duration::MAX);
    }
    match context.engine.tick() {
        Due::More => None,
        Due::Next(None) => Some(WALL_CHECK),
        Due::Next(Some(next)) => {
            let left = next.millis_since(context.clock().now().lock);
            Some(Duration::from_millis(left).clamp(Duration::from_millis(1), WALL_CHECK))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::Builder;
    use redlatch_proto::clock::WallTime;

    #[tokio::test]
    async fn shutdown_ends_a_server_with_a_manual_clock() {
        let start = WallTime::from_millis(1_700_000_000_000);
        let server = Builder::default().manual_clock(start).start().await.unwrap();
        let (mut one, mut other) = (server.stream(), server.stream());
        other.write_all(b"SET k v\r\n").await.unwrap();
        let mut answer = [0; 5];
        other.read_exact(&mut answer).await.unwrap();
        one.write_all(b"SHUTDOWN NOSAVE\r\n").await.unwrap();
        server.stopped().await;
        let mut rest = Vec::new();
        one.read_to_end(&mut rest).await.unwrap();
        other.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "both are closed without a reply");
    }
}
