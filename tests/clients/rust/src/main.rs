//! One Rust lock client against the server that the environment names: `locks fred`, `redis-rs`, `redis-rs-cluster`,
//! `redlock`, `rslock`, `rslock-native`.

mod checks;
mod fred_client;
mod native;
mod redis_client;
mod redlock_client;
mod rslock_client;

use checks::Checked;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Checked {
    match std::env::args().nth(1).as_deref() {
        Some("fred") => fred_client::run().await,
        Some("redis-rs") => redis_client::run().await,
        Some("redis-rs-cluster") => redis_client::run_in_cluster_mode().await,
        Some("redlock") => redlock_client::run(),
        Some("rslock") => rslock_client::run().await,
        Some("rslock-native") => native::run().await,
        _ => Err("one argument: fred, redis-rs, redis-rs-cluster, redlock, rslock or rslock-native".into()),
    }?;
    println!("done");
    Ok(())
}
