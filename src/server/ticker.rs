//! Expiry on time: sleeps until the next deadline, has the engine remove what is due, in bounded pieces.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::house::{AnyClock, House};
use crate::keyspace::Due;

/// How often the wall clock is compared with the monotonic one.
const WALL_CHECK: Duration = Duration::from_millis(500);
/// How often clients are looked at that nothing is heard of, in milliseconds.
const SWEEP_MS: u64 = 500;

/// Runs until the server ends. With a manual clock it only waits for SHUTDOWN: whoever moves the clock ticks.
pub(super) async fn run(house: House) {
    let mut swept = house.clock().now().lock;
    loop {
        let now = house.clock().now().lock;
        if !house.is_manual() && now.millis_since(swept) >= SWEEP_MS {
            house.engine.sweep();
            swept = now;
        }
        let nap = match nap(&house) {
            Some(nap) => nap,
            None => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        tokio::select! {
            () = house.stopped() => return,
            () = house.bell().notified() => {}
            () = tokio::time::sleep(nap) => {
                if let AnyClock::System(clock) = house.clock() {
                    clock.follow_wall();
                }
            }
        }
        if house.engine.shared().is_stopping.load(SeqCst) {
            house.stop();
            return;
        }
    }
}

/// Does what is due, and says how long there is nothing to do; `None`: there is more to do now.
fn nap(house: &House) -> Option<Duration> {
    if house.is_manual() {
        return Some(Duration::MAX);
    }
    match house.engine.tick() {
        Due::More => None,
        Due::Next(None) => Some(WALL_CHECK),
        Due::Next(Some(next)) => {
            let left = next.millis_since(house.clock().now().lock);
            Some(Duration::from_millis(left).clamp(Duration::from_millis(1), WALL_CHECK))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::clock::WallTime;
    use crate::server::Builder;

    #[tokio::test]
    async fn shutdown_ends_a_server_whose_clock_stands_still() {
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
        assert!(rest.is_empty(), "both are closed without a word");
    }
}
