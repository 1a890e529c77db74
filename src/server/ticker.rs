//! Expiry on time: sleeps until the next deadline, has the engine remove what is due, in bounded pieces.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::house::{AnyClock, House};
use crate::keyspace::Due;

/// How often the wall clock is compared with the monotonic one.
const WALL_CHECK: Duration = Duration::from_millis(500);

/// Runs until the server ends. With a manual clock it only waits for SHUTDOWN: whoever moves the clock ticks.
pub(super) async fn run(house: House) {
    loop {
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
