//! The `redlatch` binary. It holds no logic: see [`redlatch`].

fn main() {
    let server = redlatch::Builder::new()
        .set("port", std::env::args().nth(1).unwrap_or("6379".into()))
        .start_on_threads(2)
        .expect("start");
    println!("{}", server.url());
    server.join();
}
