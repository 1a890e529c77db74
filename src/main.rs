//! The `redlatch` binary. It holds no logic: see [`redlatch::cli`].

#[global_allocator]
static ALLOCATOR: redlatch::cli::Allocator = redlatch::cli::Allocator;

fn main() -> std::process::ExitCode {
    redlatch::cli::main()
}
