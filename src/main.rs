//! The `redlatch` binary. It holds no logic: see [`redlatch::cli`].

fn main() -> std::process::ExitCode {
    redlatch::cli::main()
}
