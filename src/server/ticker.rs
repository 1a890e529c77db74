//! Expiry on time: sleeps until the next deadline, has the engine remove what is due, in bounded pieces.

use std::time::Duration;

use super::house::{AnyClock, House};
use crate::keyspace::Due;

/// How often the wall clock is compared with the monotonic one.
const WALL_CHECK: Duration = Duration::from_millis(500);

/// Runs until the server ends. A manual clock needs no ticker: whoever moves it ticks.
pub(super) async fn run(house: House) {
    let AnyClock::System(clock) = house.clock().clone() else { return };
    loop {
        let nap = match house.engine.tick() {
            Due::More => {
                tokio::task::yield_now().await;
                continue;
            }
            Due::Next(None) => WALL_CHECK,
            Due::Next(Some(next)) => {
                let left = next.millis_since(house.clock().now().lock);
                Duration::from_millis(left).clamp(Duration::from_millis(1), WALL_CHECK)
            }
        };
        tokio::select! {
            () = house.stopped() => return,
            () = house.bell().notified() => {}
            () = tokio::time::sleep(nap) => clock.follow_wall(),
        }
        if house.engine.shared().is_stopping.load(std::sync::atomic::Ordering::SeqCst) {
            house.stop();
        }
    }
}
